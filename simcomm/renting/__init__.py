"""What a training costs on rented machines: prices, what they make of a predicted rate, and which to choose."""
