"""What the GPUs of this machine do, as NVML tells: busy share, memory, energy."""
