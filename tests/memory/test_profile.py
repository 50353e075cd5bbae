"""Profiles: what is set is read back, once per key; what admins wrote is respected; nothing is over its bounds."""

import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.errors import StoreError
from memory.generations import Forgotten, Generations
from memory.profile import MAX_BYTES, MAX_FIELDS, MAX_TEXT, MAX_VALUES, Profiles, ProfileTooLarge, ProfileUnreadable

USER = "uu3r7qbo6l6i3"


def file_of(root: Path) -> Path:
    return root / "users" / f"{USER}.yaml"


def written(root: Path, text: str) -> Profiles:
    file_of(root).parent.mkdir(exist_ok=True)
    file_of(root).write_text(text, encoding="utf-8")
    return Profiles(root)


def test_what_is_set_is_read_back_replaced_and_taken_out(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    assert profiles.read(USER) == {}
    assert profiles.update(USER, {"skills": ["Java", "Java", " "], "city": ["上海"]}, "1") == {
        "skills": ("Java",),
        "city": ("上海",),
    }
    profiles.update(USER, {"skills": ["Go", "Rust"]}, "2")
    assert Profiles(tmp_path).read(USER) == {"city": ("上海",), "skills": ("Go", "Rust")}
    profiles.update(USER, {"city": []}, "3")
    assert profiles.read(USER) == {"skills": ("Go", "Rust")}
    document = yaml.safe_load(file_of(tmp_path).read_text(encoding="utf-8"))
    assert document["profile"] == {"skills": ["Go", "Rust"]}
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == [f"{USER}.yaml"]


def test_one_key_changes_something_once(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.update(USER, {"city": ["上海"]}, "m1/0/c1")
    profiles.update(USER, {"city": ["北京"]}, "m2/0/c1")
    assert Profiles(tmp_path).update(USER, {"city": ["上海"]}, "m1/0/c1") == {"city": ("北京",)}
    assert profiles.read(USER) == {"city": ("北京",)}


def test_what_admins_wrote_stays_as_text_and_beside_it(tmp_path: Path) -> None:
    profiles = written(
        tmp_path,
        "name: 张三\nteam: 乙组\nprofile:\n  code: 0123\n  remote: no\n  at: 12:30\n  langs: [C, yes]\n"
        "  home: {city: 上海, floor: 3}\n  empty:\n",
    )
    assert profiles.read(USER) == {
        "code": ("0123",),
        "remote": ("no",),
        "at": ("12:30",),
        "langs": ("C", "yes"),
        "home": ("city 上海", "floor 3"),
    }
    profiles.update(USER, {"skills": ["Java"]}, "1")
    document = yaml.load(file_of(tmp_path).read_text(encoding="utf-8"), yaml.BaseLoader)
    assert (document["name"], document["team"]) == ("张三", "乙组")
    assert document["profile"]["home"] == {"city": "上海", "floor": "3"}
    assert document["profile"]["code"] == "0123"
    assert yaml.safe_load(file_of(tmp_path).read_text(encoding="utf-8"))["profile"]["remote"] == "no"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: }", ":1"),
        ("- a\n- b\n", "键"),
        ("profile: [a]\n", "profile"),
        ("x: " + "y" * MAX_BYTES, "KiB"),
        ("\ud800", "UTF-8"),
    ],
)
def test_a_file_that_is_no_profile_is_named_and_left_alone(tmp_path: Path, text: str, said: str) -> None:
    file_of(tmp_path).parent.mkdir()
    before = text.encode("utf-8", "surrogatepass")
    file_of(tmp_path).write_bytes(before)
    profiles = Profiles(tmp_path)
    with pytest.raises(ProfileUnreadable, match=f"{USER}.*{said}"):
        profiles.read(USER)
    with pytest.raises(ProfileUnreadable):
        profiles.update(USER, {"city": ["上海"]}, "1")
    assert file_of(tmp_path).read_bytes() == before


def test_bounds_change_nothing(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.update(USER, {f"f{n}": ["x"] for n in range(MAX_FIELDS)}, "1")
    before = profiles.read(USER)
    for fields in (
        {"one more": ["x"]},
        {"f0": ["x" * (MAX_TEXT + 1)]},
        {"f0": [str(n) for n in range(MAX_VALUES + 1)]},
        {" ": ["x"]},
        {"n" * 33: ["x"]},
    ):
        with pytest.raises(ProfileTooLarge):
            profiles.update(USER, fields, "2")
    assert profiles.read(USER) == before
    big = {f"f{n}": [chr(0x4E00 + m) * MAX_TEXT for m in range(MAX_VALUES)] for n in range(MAX_FIELDS)}
    with pytest.raises(ProfileTooLarge):
        profiles.update(USER, big, "3")
    assert profiles.read(USER) == before


def test_nobody_but_a_person_has_one(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    for user in ("g" + "a" * 12, "../../etc", "u", "", USER + "\n"):
        assert profiles.read(user) == {}
        with pytest.raises(ProfileTooLarge):
            profiles.update(user, {"a": ["b"]}, "1")
    assert not (tmp_path / "users").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("profile: {key: geheim}", encoding="utf-8")
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).symlink_to(secret)
    with pytest.raises(StoreError):
        Profiles(tmp_path).read(USER)


def test_a_change_asked_for_before_a_person_was_forgotten_comes_too_late(tmp_path: Path) -> None:
    generations = Generations()
    profiles, before = Profiles(tmp_path, generations), generations.now()
    generations.forget(USER)
    with pytest.raises(Forgotten):
        profiles.update(USER, {"city": ["上海"]}, "1", before)
    assert not file_of(tmp_path).exists()
    profiles.update(USER, {"city": ["上海"]}, "2", generations.now())
    assert profiles.read(USER)


def test_changes_side_by_side_are_all_there(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    threads = [threading.Thread(target=profiles.update, args=(USER, {f"f{n}": [str(n)]}, f"k{n}")) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert profiles.read(USER) == {f"f{n}": (str(n),) for n in range(20)} | profiles.read(USER)
    assert len(profiles.read(USER)) == 20


_fields = st.dictionaries(
    st.text(max_size=20), st.lists(st.text(st.characters(codec=None), max_size=40), max_size=4), max_size=5
)


@given(st.lists(_fields, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_set_is_read_back_by_another_process_too(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, list[str]]]
) -> None:
    root = tmp_path_factory.mktemp("profiles")
    profiles = Profiles(root)
    for number, fields in enumerate(changes):
        try:
            now = profiles.update(USER, fields, str(number))
        except ProfileTooLarge:
            continue
        assert Profiles(root).read(USER) == now
        assert all("\n" not in text and text.strip() == text for values in now.values() for text in values)
