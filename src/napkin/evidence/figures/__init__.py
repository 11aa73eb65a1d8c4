"""Published figures that answers quote: prices, power, goodput, interruptions, lengths of responses. No formula."""
