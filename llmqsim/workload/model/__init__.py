"""Traffic as a model: fitted on a trace or written by hand, drawn as a trace; and how well it stands for one."""
