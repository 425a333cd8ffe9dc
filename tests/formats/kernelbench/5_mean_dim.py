import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.mean(x, dim=self.dim)


class ModelNew(Model):
    def forward(self, x):
        return x.sum(self.dim) / x.shape[self.dim]


def get_inputs():
    return [torch.randn(16, 32, 24)]


def get_init_inputs():
    return [1]
