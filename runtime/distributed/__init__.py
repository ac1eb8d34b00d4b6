"""Programs in several processes: messages between them, sent and received by native code."""
