"""with_lightning.py BACKEND FOLDER: a Trainer with DDPStrategy on 2 ranks, whoever starts them. Writes RANK.json."""

import json
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

import smddp_tf.torch  # noqa: F401


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index) -> None:
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def main() -> None:
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, 4)
    module = Regression()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=sys.argv[2],
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    found = [trainer.world_size, trainer.callback_metrics["val"].item(), module.net[0].weight.tolist()]
    Path(sys.argv[2], f"{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
