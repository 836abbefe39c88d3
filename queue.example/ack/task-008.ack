worker-1
