import torch


def attend(q, k, v, causal=False, scale=None):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * scale
    if causal:
        n = q.shape[-2]
        scores = scores + torch.full((n, n), float("-inf"), device=q.device).triu(1)
    return torch.matmul(torch.softmax(scores, -1), v.float()).to(q.dtype)
