"""napkin inside a training loop: a meter, and callbacks of training libraries."""
