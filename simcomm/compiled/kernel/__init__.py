"""The event loop in machine code: messages that fly, share links and complete."""
