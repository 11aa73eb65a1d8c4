"""Encoders that predict masked tokens, and XLNet, which predicts tokens in a drawn order."""
