"""The ways on which notifications leave: each one sends, and can be asked what arrived."""
