"""How models write answers, and how they are read: calls as JSON or in text, text, and unions of them."""
