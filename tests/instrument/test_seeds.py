"""Seeds: nobody knows them before, everybody may know them afterwards, and who gives one gets the same again."""

from kernels.parent.seeds import SEED_BITS, Draws, secret


def test_what_was_drawn_repeats_from_the_seed_and_only_from_it():
    first, again, other = Draws("7/key"), Draws("7/key"), Draws("8/key")
    drawn = [first.of_inputs() for _ in range(50)]
    assert drawn == [again.of_inputs() for _ in range(50)]
    assert not set(drawn) & {other.of_inputs() for _ in range(50)}
    assert max(drawn) >= 2**62 and max(drawn) < 2**SEED_BITS
    assert first.sample(range(9), 9) == again.sample(range(9), 9)
    assert [first.randrange(5) for _ in range(20)] == [again.randrange(5) for _ in range(20)]


def test_it_draws_evenly():
    draws = Draws("even")
    counts = [0] * 5
    for _ in range(5000):
        counts[draws.randrange(5)] += 1
    assert all(abs(count - 1000) < 150 for count in counts)
    assert abs(sum(draws.random() for _ in range(2000)) / 2000 - 0.5) < 0.05


def test_a_secret_fits_into_a_database_and_is_another_each_time():
    drawn = {secret() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 <= one < 2**63 for one in drawn)
    assert max(drawn) >= 2**60
