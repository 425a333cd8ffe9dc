import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp() - 1


class ModelNew(nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.randn(64, 64)]
