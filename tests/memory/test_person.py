"""Which accounts are one person: chains and cycles, links made and undone at any moment, what admins write, one profile."""

import errno
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memory import person_file
from memory.errors import StoreError
from memory.generations import Forgotten, Generations
from memory.person import Links, Persons
from memory.person_file import ProfileUnreadable, parsed
from memory.profile import Profiles, ProfileTooLarge

A, B, C, D = (f"u{letter * 12}" for letter in "abcd")
USERS = [f"u{letter * 12}" for letter in "abcdefg"]

users = st.sampled_from(USERS)
links = st.dictionaries(users, users).map(lambda said: Links({user: to for user, to in said.items() if user != to}))


def parts(links: Links) -> set[frozenset[str]]:
    """The accounts by person, found another way: every link joins two sets."""
    sets = {user: frozenset([user]) for user in USERS}
    for user, other in links.same_as.items():
        joined = sets[user] | sets[other]
        sets |= dict.fromkeys(joined, joined)
    return set(sets.values())


def without(links: Links, *gone: str) -> Links:
    """The links once the files of these accounts are no more."""
    return Links({user: other for user, other in links.same_as.items() if user not in gone})


def write(root: Path, user: str, text: str) -> None:
    path = root / "users" / f"{user}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def document(root: Path, user: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((root / "users" / f"{user}.yaml").read_text(encoding="utf-8"))
    return found


# ---- pure


def test_a_chain_is_one_person() -> None:
    chain = Links({B: A, C: B})
    assert [chain.root(each) for each in (A, B, C, D)] == [A, A, A, D]
    assert (chain.ids_of(A), chain.ids_of(B), chain.ids_of(C), chain.ids_of(D)) == (
        (A, B, C),
        (B, C, A),
        (C, B, A),
        (D,),
    )


def test_a_cycle_is_one_person_and_the_least_stands_for_it() -> None:
    cycle = Links({A: B, B: C, C: A, D: C})
    assert {cycle.root(each) for each in (A, B, C, D)} == {A}
    assert Links({A: B, B: A}).ids_of(B) == (B, A)


@given(links, users)
def test_all_accounts_of_a_person_name_the_same_one(links: Links, user: str) -> None:
    ids = links.ids_of(user)
    assert ids[0] == user
    assert len(set(ids)) == len(ids)
    assert frozenset(ids) in parts(links)
    assert {links.root(each) for each in ids} == {links.root(user)}
    assert links.root(user) in ids


@given(links, users)
def test_forgotten_in_the_reverse_order_the_rest_is_always_found(links: Links, user: str) -> None:
    ids = list(links.ids_of(user))
    gone: list[str] = []
    while ids:
        assert set(without(links, *gone).ids_of(user)) >= set(ids)
        gone.append(ids.pop())


@given(links, users, users)
def test_linking_joins_two_persons_and_nobody_else(links: Links, user: str, other: str) -> None:
    after = links.changed(links.linking(user, other))
    assert after.root(user) == after.root(other)
    assert set(after.ids_of(user)) == {*links.ids_of(user), *links.ids_of(other)}
    assert len(parts(after)) == len(parts(links)) - (other not in links.ids_of(user))
    assert after.linking(user, other) == []


@given(links, users, st.integers(0, 6))
def test_unlinking_takes_out_one_account_however_often_it_is_broken_off(links: Links, user: str, done: int) -> None:
    rest = frozenset(links.ids_of(user)[1:])
    links = links.changed(links.unlinking(user)[:done])
    after = links.changed(links.unlinking(user))
    assert after.ids_of(user) == (user,)
    assert not rest or rest in parts(after)
    assert after.unlinking(user) == []


# ---- files


def test_a_link_stands_in_the_file_of_who_followed_and_goes_again(tmp_path: Path) -> None:
    persons = Persons(tmp_path)
    write(tmp_path, B, "name: 张三\nprofile: {city: 上海}\n")
    assert persons.link(B, A, 0)
    assert document(tmp_path, B) == {"same-as": A, "name": "张三", "profile": {"city": "上海"}}
    assert not (tmp_path / "users" / f"{A}.yaml").exists()
    assert persons.of(B) == A
    assert not persons.link(A, B, 0), "they are one person already"
    assert persons.link(C, B, 0)
    assert Persons(tmp_path).loaded().ids_of(A) == (A, B, C)
    assert persons.unlink(B, 0)
    assert document(tmp_path, B) == {"name": "张三", "profile": {"city": "上海"}}
    assert document(tmp_path, C) == {"same-as": A}
    assert persons.unlink(A, 0)
    assert not (tmp_path / "users" / f"{C}.yaml").exists(), "nothing else stood in it"
    assert not persons.unlink(A, 0)
    assert Persons(tmp_path).loaded() == Links({})


def test_what_was_written_a_moment_ago_counts_when_a_link_is_made_or_undone(tmp_path: Path) -> None:
    persons = Persons(tmp_path)
    assert persons.loaded() == Links({})
    write(tmp_path, A, f"same-as: {B}\n")
    assert not persons.link(B, A, 0), "no cycle is made"
    write(tmp_path, A, f"same-as: {C}\n")
    assert persons.unlink(C, 0)
    assert persons.links == Links({})


def test_who_is_linked_brings_all_their_accounts(tmp_path: Path) -> None:
    persons = Persons(tmp_path)
    persons.link(B, A, 0)
    persons.link(B, C, 0)
    assert {persons.of(each) for each in (A, B, C)} == {C}
    assert document(tmp_path, B) == {"same-as": A}


def test_what_admins_write_is_seen_and_read_again_only_when_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persons = Persons(tmp_path)
    assert persons.refresh() == Links({})
    write(tmp_path, B, f'"same-as":  "{A}" # 同一个人\n')
    write(tmp_path, C, f"same-as: {B}\n")
    write(tmp_path, D, "profile: {}\n")
    (tmp_path / "users" / "notes.yaml").write_text(f"same-as: {A}\n")
    assert persons.refresh() == Links({B: A, C: B})
    monkeypatch.setattr(persons, "_said", lambda user: pytest.fail(f"{user} was read again"))
    assert persons.refresh() == Links({B: A, C: B})
    monkeypatch.undo()
    write(tmp_path, B, "same-as:\n")
    (tmp_path / "users" / f"{C}.yaml").unlink()
    assert persons.refresh() == Links({})


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (f"same-as: {B}", "不能是自己"),
        ("same-as: 张三", "应为另一个账号的标识"),
        (f"same-as: [{A}]", "应为另一个账号的标识"),
        (f"same-as: {{user: {A}}}", "应为另一个账号的标识"),
        (f"same-as: g{'a' * 12}", "应为另一个账号的标识"),
        ("same-as: ../../secret", "应为另一个账号的标识"),
        ("same-as: [", "不是有效的 YAML"),
        (f"- same-as: {A}", "键"),
    ],
)
def test_what_makes_no_sense_is_told_once_in_one_line_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str, said: str
) -> None:
    write(tmp_path, B, written + "\n")
    write(tmp_path, C, f"same-as: {A}\n")
    persons = Persons(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert persons.refresh() == Links({C: A})
        persons.refresh()
    (line,) = caplog.messages
    assert f"users/{B}.yaml" in line
    assert said in line
    assert "secret" not in line


def test_a_file_that_cannot_be_read_for_a_moment_unlinks_nobody(tmp_path: Path) -> None:
    write(tmp_path, B, f"same-as: {A}\n")
    persons = Persons(tmp_path)
    persons.refresh()
    write(tmp_path, B, f"same-as: {A}\nprofile: [\n")
    assert persons.refresh() == Links({B: A})
    with pytest.raises(StoreError, match=f"users/{B}.yaml:"):
        persons.unlink(B, 0)
    assert persons.links == Links({B: A})


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_what_the_system_did_not_let_be_read_is_read_another_time_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def broken(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    write(tmp_path, B, f"same-as: {A}\n")
    write(tmp_path, C, "name: 张三\n")
    persons = Persons(tmp_path)
    monkeypatch.setattr(person_file, "open_file", broken)
    assert persons.refresh() == Links({})
    assert persons.refresh() == Links({})
    assert sorted(message.split(" reason=")[0] for message in caplog.messages) == [
        f"person file not read user={user}" for user in (B, C)
    ]
    monkeypatch.undo()
    assert persons.refresh() == Links({B: A})
    write(tmp_path, B, f"same-as: {C}\n")
    monkeypatch.setattr(person_file, "open_file", broken)
    assert persons.refresh() == Links({B: A}), "what it said last goes on"
    (tmp_path / "users" / f"{B}.yaml").unlink()
    assert persons.refresh() == Links({}), "but not when it is gone"


def test_a_file_that_comes_with_its_old_date_is_read(tmp_path: Path) -> None:
    write(tmp_path, B, f"same-as: {A}\n")
    path, persons = tmp_path / "users" / f"{B}.yaml", Persons(tmp_path)
    persons.refresh()
    before = path.stat()
    write(tmp_path, B, f"same-as: {C}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert persons.refresh() == Links({B: C})


def test_no_link_is_followed_out_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text(f"same-as: {A}\n")
    (tmp_path / "users").mkdir()
    os.symlink(tmp_path / "outside.yaml", tmp_path / "users" / f"{B}.yaml")
    assert Persons(tmp_path).refresh() == Links({})


def test_who_was_forgotten_meanwhile_is_linked_to_nobody(tmp_path: Path) -> None:
    for user in (A, B):
        generations = Generations()
        persons, before = Persons(tmp_path, generations), generations.now()
        generations.forget(user)
        with pytest.raises(Forgotten):
            persons.link(B, A, before)
        assert Persons(tmp_path).loaded() == Links({})
        assert not (tmp_path / "users" / f"{B}.yaml").exists()


def test_both_at_once_make_one_link(tmp_path: Path) -> None:
    persons = Persons(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            made = threads.map(persons.link, (A, B), (B, A), (0, 0))
            assert sorted(made) == [False, True]
            assert len(Persons(tmp_path).loaded().same_as) == 1
            persons.unlink(A, 0)


def test_a_file_saved_as_gbk_is_said_to_be_so() -> None:
    with pytest.raises(ProfileUnreadable, match=rf"^users/{A}\.yaml:2: 不是 UTF-8 编码；请另存为 UTF-8$"):
        parsed(A, "x: 1\nprofile: {city: 上海}\n".encode("gbk"))


# ---- one profile


def profiles(root: Path, said: Mapping[str, str]) -> tuple[Profiles, Persons]:
    persons = Persons(root)
    for user, other in said.items():
        persons.link(user, other, 0)
    return Profiles(root, None, persons), persons


def test_accounts_share_one_profile_until_they_are_unlinked(tmp_path: Path) -> None:
    mine, persons = profiles(tmp_path, {})
    mine.update(A, {"city": ["上海"]}, "1")
    mine.update(B, {"city": ["北京"], "skills": ["Go"]}, "2")
    persons.link(B, A, 0)
    both = {"city": ("上海",), "skills": ("Go",)}
    assert (mine.read(A), mine.read(B)) == (both, both)
    assert mine.update(B, {"title": ["后端"], "city": ["杭州"]}, "3") == {
        "city": ("杭州",),
        "skills": ("Go",),
        "title": ("后端",),
    }
    assert mine.read(A) == mine.read(B)
    assert mine.update(B, {"title": ["前端"], "city": []}, "3")["title"] == ("后端",), "made once"
    persons.unlink(B, 0)
    assert mine.read(A) == {"city": ("杭州",), "title": ("后端",)}
    assert mine.read(B)["skills"] == ("Go",)
    assert mine.read(C) == {}


def test_what_is_taken_out_is_nowhere_any_more(tmp_path: Path) -> None:
    mine, _ = profiles(tmp_path, {})
    for user in (A, B, C):
        mine.update(user, {"city": [user], "skills": ["Go"]}, user)
    mine, persons = profiles(tmp_path, {B: A, C: B})
    assert mine.update(C, {"city": []}, "x") == {"skills": ("Go",)}
    assert mine.read(A) == {"skills": ("Go",)}
    for user in (A, B, C):
        persons.unlink(user, 0)
        assert "city" not in mine.read(user)


def test_all_together_are_no_more_than_one_may_have(tmp_path: Path) -> None:
    mine, persons = profiles(tmp_path, {})
    for user in (A, B):
        mine.update(user, {f"{user[1]}{n}": ["x"] for n in range(30)}, user)
    persons.link(B, A, 0)
    seen = mine.read(B)
    assert len(seen) == 40
    assert [name for name in seen if name.startswith("a")] == [f"a{n}" for n in range(30)], "the first account's stay"
    with pytest.raises(ProfileTooLarge):
        mine.update(B, {f"c{n}": ["x"] for n in range(11)}, "c")


def test_a_forgotten_account_writes_nothing_into_the_others_file(tmp_path: Path) -> None:
    generations = Generations()
    persons = Persons(tmp_path, generations)
    mine, before = Profiles(tmp_path, generations, persons), generations.now()
    persons.link(B, A, before)
    generations.forget(B)
    with pytest.raises(Forgotten):
        mine.update(B, {"city": ["上海"]}, "1", before)
    assert mine.read(A) == {}


def test_a_group_has_no_profile_and_is_nobody(tmp_path: Path) -> None:
    group = "g" + "a" * 12
    write(tmp_path, group, f"same-as: {A}\n")
    mine, persons = profiles(tmp_path, {})
    mine.update(A, {"city": ["上海"]}, "1")
    assert mine.read(group) == {}
    assert persons.of(group) == group
