"""What to change before buying: every lever short of hardware measured, the best stack of them, what is left to buy."""
