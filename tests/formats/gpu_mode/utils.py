import torch


def close(received, expected, rtol=1e-3, atol=1e-3):
    if received.shape != expected.shape:
        return False, f"shape {tuple(received.shape)}, expected {tuple(expected.shape)}"
    bad = ~torch.isclose(received.float(), expected.float(), rtol=rtol, atol=atol)
    return not bool(bad.any()), f"{int(bad.sum())} elements differ"
