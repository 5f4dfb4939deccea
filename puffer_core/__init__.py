"""Reinforcement learning in seconds: environments, vectorisation, policies and trainers as plugins."""
