"""Native sparse attention in plain PyTorch, right and wrong: a loop over tokens and groups, on the CPU."""

import torch

from kernels.catalog import kernel


def places_of(slots, block_size, token, length, causal):
    """Positions of the keys that the valid slots of a token select, slot after slot, without hidden ones."""
    keys = [torch.arange(block * block_size, min((block + 1) * block_size, length)) for block in slots if block >= 0]
    places = torch.cat(keys) if keys else torch.zeros(0, dtype=torch.long)
    return places[places <= token] if causal else places


def window_of(token, length, window, causal):
    return torch.arange(max(0, token - window + 1), token + 1 if causal else min(length, token + window))


def softmax_of(q, k, v, scale):
    """q: (heads, D); k, v: (keys, D). 0 without keys."""
    if not len(k):
        return torch.zeros_like(q, dtype=torch.float32)
    scores = q.float() @ k.float().mT * scale
    return scores.softmax(-1).to(v.dtype).float() @ v.float()


def nsa(q, k, v, block_indices, block_size, causal, scale, window, places=places_of, one=softmax_of, near=window_of):
    """places: of the selected keys. one: attention of the heads of a group over some keys. near: keys of the window."""
    batch, length, heads, _ = q.shape
    groups = k.shape[2]
    mine, out = heads // groups, torch.empty_like(q)
    for b in range(batch):
        chosen = block_indices[b].tolist()
        for token in range(length):
            for g in range(groups):
                some = slice(g * mine, (g + 1) * mine)
                seen = places(chosen[token][g], block_size, token, length, causal)
                total = one(q[b, token, some], k[b, seen, g], v[b, seen, g], scale)
                if window:
                    seen = near(token, length, window, causal)
                    total = total + one(q[b, token, some], k[b, seen, g], v[b, seen, g], scale)
                out[b, token, some] = total.to(q.dtype)
    return out


# --- right ------------------------------------------------------------------------------------------------------------


@kernel("nsa", backend="pytorch")
def token_by_token(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    return nsa(q, k, v, block_indices, block_size, causal, scale, window)


@kernel("nsa", backend="pytorch")
def in_order_of_position(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Blocks in the order of the sequence, not of their slots."""

    def places(slots, *more):
        return places_of(sorted(slots), *more)

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, places=places)


@kernel("nsa", backend="pytorch")
def online(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """16 keys at a time, with the scale folded into q, in base 2."""

    def one(q, k, v, scale):
        if not len(k):
            return torch.zeros_like(q, dtype=torch.float32)
        q = (q.float() * (scale * 1.4426950408889634)).to(q.dtype)
        largest = torch.full((len(q), 1), -torch.inf)
        total, sums = torch.zeros(len(q), 1), torch.zeros(q.shape)
        for keys, values in zip(k.split(16), v.split(16), strict=True):
            scores = q.float() @ keys.float().mT
            before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
            part, shrink = torch.exp2(scores - largest), torch.exp2(before - largest)
            total = total * shrink + part.sum(-1, keepdim=True)
            sums = sums * shrink + part.to(v.dtype).float() @ values.float()
        return sums / total

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, one=one)


@kernel("nsa", backend="pytorch")
def by_a_mask(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Dense attention with a mask that hides what is not selected."""
    length, mine = q.shape[1], q.shape[2] // k.shape[2]
    blocks = -(-length // block_size)
    chosen = torch.nn.functional.one_hot(block_indices.long() + 1, blocks + 1).amax(-2)[..., 1:].bool()
    seen = chosen.repeat_interleave(block_size, -1)[..., :length]
    token, key = torch.arange(length)[:, None], torch.arange(length)
    if causal:
        seen = seen & (key <= token)[:, None]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(mine, 2), v.repeat_interleave(mine, 2)))
    scores = (q @ k.mT).float() * scale
    seen = seen.repeat_interleave(mine, 2).transpose(1, 2)
    out = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0).to(v.dtype) @ v
    if window:
        hidden = (key > token if causal else key >= token + window) | (key <= token - window)
        out = out + scores.masked_fill(hidden, -torch.inf).softmax(-1).to(v.dtype) @ v
    return out.transpose(1, 2)


# --- wrong ------------------------------------------------------------------------------------------------------------


@kernel("nsa", backend="pytorch")
def sentinel_is_block_0(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    return nsa(q, k, v, block_indices.clamp_min(0), block_size, causal, scale, window)


@kernel("nsa", backend="pytorch")
def stops_at_the_first_sentinel(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    def places(slots, *more):
        return places_of(slots[: slots.index(-1)] if -1 in slots else slots, *more)

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, places=places)


@kernel("nsa", backend="pytorch")
def last_slot_left_out(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    return nsa(q, k, v, block_indices[..., :-1], block_size, causal, scale, window)


@kernel("nsa", backend="pytorch")
def blocks_of_the_first_group(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Every group sees the blocks of the first one."""
    return nsa(q, k, v, block_indices[:, :, :1].expand_as(block_indices), block_size, causal, scale, window)


@kernel("nsa", backend="pytorch")
def blocks_of_the_token_before(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Two neighbouring tokens share the blocks of the first one."""
    shared = block_indices.clone()
    shared[:, 1::2] = block_indices[:, : shared.shape[1] - shared.shape[1] % 2 : 2]
    return nsa(q, k, v, shared, block_size, causal, scale, window)


@kernel("nsa", backend="pytorch")
def not_causal_within_a_block(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Hides later blocks, and no key of the token's own."""

    def places(slots, block_size, token, length, causal):
        slots = [block for block in slots if not causal or block * block_size <= token]
        return places_of(slots, block_size, token, length, False)

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, places=places)


@kernel("nsa", backend="pytorch")
def sees_one_key_more(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """The key after a causal token."""

    def places(slots, block_size, token, length, causal):
        return places_of(slots, block_size, token + 1, length, causal)

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, places=places)


@kernel("nsa", backend="pytorch")
def padding_is_a_key(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Hidden keys have the score 0, and take part in the sum."""
    slots = block_indices.shape[-1] * block_size

    def one(q, k, v, scale):
        scores = torch.nn.functional.pad(q.float() @ k.float().mT * scale, (0, max(0, slots - len(k))))
        return scores.softmax(-1)[:, : len(k)].to(v.dtype).float() @ v.float()

    return nsa(q, k, v, block_indices, block_size, causal, scale, window, one=one)


@kernel("nsa", backend="pytorch")
def mean_where_no_key_is(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """A token without a block sees all keys alike: scores of one large negative number instead of -inf."""
    right = nsa(q, k, v, block_indices, block_size, causal, scale, window)
    none = (block_indices < 0).all(-1).repeat_interleave(q.shape[2] // k.shape[2], 2)
    means = v.float().mean(1, keepdim=True).repeat_interleave(q.shape[2] // k.shape[2], 2).to(q.dtype)
    return torch.where(none[..., None], means, right)


@kernel("nsa", backend="pytorch")
def nan_where_no_key_is(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """0 / 0."""
    right = nsa(q, k, v, block_indices, block_size, causal, scale, window)
    none = (block_indices < 0).all(-1).repeat_interleave(q.shape[2] // k.shape[2], 2)
    return right.masked_fill(none[..., None], torch.nan)


@kernel("nsa", backend="pytorch")
def heads_in_turn(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Head h belongs to group h mod G."""
    groups, heads = k.shape[2], q.shape[2]
    order = torch.arange(heads).view(-1, groups).mT.flatten()
    out = nsa(q[:, :, order], k, v, block_indices, block_size, causal, scale, window)
    return out[:, :, order.argsort()]


@kernel("nsa", backend="pytorch")
def usual_scale(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """1 / sqrt(D), whatever the scale is."""
    return nsa(q, k, v, block_indices, block_size, causal, q.shape[-1] ** -0.5, window)


@kernel("nsa", backend="pytorch")
def window_one_key_short(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    return nsa(q, k, v, block_indices, block_size, causal, scale, max(0, window - 1))


@kernel("nsa", backend="pytorch")
def one_softmax_for_both(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Selected keys and those of the window together, each key once."""

    def places(slots, block_size, token, length, causal):
        both = [places_of(slots, block_size, token, length, causal), window_of(token, length, window, causal)]
        return torch.cat(both).unique()

    return nsa(q, k, v, block_indices, block_size, causal, scale, 0, places=places)
