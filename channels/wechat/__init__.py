"""公众号: people who follow a WeChat Official Account."""
