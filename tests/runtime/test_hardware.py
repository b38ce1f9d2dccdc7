import torch

from regard.runtime import hardware


def test_fastest_thread_count_is_set(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    stored = []
    monkeypatch.setattr(torch, "set_num_threads", stored.append)
    for best in (1, 2, 4):
        monkeypatch.setattr(hardware, "_seconds", lambda n, best=best: 1.0 if n == best else 2.0)
        assert hardware.choose_threads() == best
        assert stored[-1] == best


def test_omp_num_threads_is_respected(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(hardware, "_seconds", lambda n: 1 / 0)
    assert hardware.choose_threads() == torch.get_num_threads()
