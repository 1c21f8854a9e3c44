"""What a network is to hardware: architecture, workload, footprint, operators of a step."""
