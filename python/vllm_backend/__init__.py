"""LocalAI's gRPC backend contract on top of libvllm."""
