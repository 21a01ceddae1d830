"""Pages that show an answer: one HTML file that needs nothing else, to be sent to a colleague (`llmqsim report`)."""
