"""As SMDDP's documents print it."""

import smdistributed.dataparallel.torch.torch_smddp
import torch.distributed as dist

dist.init_process_group("smddp")
tensor = __import__("torch").tensor([dist.get_rank() + 1.0])
dist.all_reduce(tensor)
print(dist.get_backend(), tensor.item(), smdistributed.dataparallel.torch.torch_smddp.__name__ != "", flush=True)
