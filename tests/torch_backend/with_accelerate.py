"""Accelerate takes the group that there is."""

import torch
from accelerate import Accelerator

import smddp_tf.torch  # noqa: F401

torch.distributed.init_process_group("smddp")
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), 4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
backend = torch.distributed.get_backend()
print(f"{accelerator.num_processes} processes, {backend}, {type(model).__name__}, {ranks}", flush=True)
