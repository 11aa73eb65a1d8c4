// Keeps the page's files, so that it works without a network after the first visit. built.json names them.

const CACHE = "napkin-";

async function fill() {
  const built = await (await fetch("built.json", { cache: "no-store" })).json();
  const cache = await caches.open(CACHE + built.digest);
  await cache.addAll(built.files.map((name) => new Request(name, { cache: "no-cache" })));
  const old = (await caches.keys()).filter((name) => name.startsWith(CACHE) && name !== CACHE + built.digest);
  await Promise.all(old.map((name) => caches.delete(name)));
}

self.addEventListener("install", (event) => event.waitUntil(fill().then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || !event.request.url.startsWith(self.registration.scope)) return;
  event.respondWith(caches.match(event.request, { ignoreSearch: true }).then((found) => found ?? fetch(event.request)));
});
