"""The table of datasets: every recipe's data are in it; where they are missing, the message says where to get them."""

import importlib
import inspect

import pytest

from regard.core.errors import BadInput
from regard.data.datasets import DATASETS, PAGE, datasets_of
from regard.training import train
from regard.training.recipe import list_recipes, load_recipe, quick_recipe

ROOT = inspect.getfile(importlib.import_module("regard")).rsplit("/src/", 1)[0]


def test_missing_data_of_a_recipe_name_their_home_page(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in list_recipes():
        recipe = quick_recipe(load_recipe(name))
        if needed := datasets_of(recipe.data):
            with pytest.raises(BadInput) as error:
                train(recipe, tmp_path / "run")
            homes = [DATASETS[dataset].home for dataset in needed]
            assert PAGE in str(error.value), name
            assert any(home in str(error.value) for home in homes), name
        else:
            source = inspect.getsource(importlib.import_module(type(recipe.data).__module__))
            assert "find_dataset" not in source, name


def test_missing_dataset_of_any_name_does_too(tmp_path, monkeypatch):
    from regard.data.data_dir import find_dataset

    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    for name, info in DATASETS.items():
        assert info.home.startswith("http")
        with pytest.raises(BadInput, match=f"no dataset '{name}'") as error:
            find_dataset(name)
        assert f"published at {info.home}, and {PAGE} says which files are read" in str(error.value)
    with pytest.raises(BadInput) as error:
        find_dataset("mine")
    assert PAGE not in str(error.value)


def test_the_page_is_made_from_the_table():
    with open(f"{ROOT}/{PAGE}", encoding="utf-8") as page:
        text = page.read()
    assert all(f"| `{name}` |" in text for name in DATASETS)
    with open(f"{ROOT}/mkdocs.yml", encoding="utf-8") as config:
        assert ": data.md\n" in config.read()
