"""The system calls a sandboxed command may make: Docker's default profile for a process without capabilities, less.

Left out beyond Docker's profile: setting extended attributes (they are no part of a state), native asynchronous I/O,
tracing of other processes, file handles, memfd_secret, and socket families other than unix, inet, inet6, netlink.
`sync` and `syncfs` do nothing: they would write back the whole host. Standard library only.
"""

from __future__ import annotations

import errno
import struct

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_NEW_NAMESPACES = 0x7E020000
_FAMILIES = (1, 2, 10, 16)
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SPECIAL = {
    "x86_64": {"clone": 56, "clone3": 435, "socket": 41, "personality": 135},
    "aarch64": {"clone": 220, "clone3": 435, "socket": 198, "personality": 92},
}
_NO_ATTRIBUTES = {"x86_64": (188, 189, 190, 197, 198, 199), "aarch64": (5, 6, 7, 14, 15, 16)}
_NO_SYNC = {"x86_64": (162, 306), "aarch64": (81, 267)}

# Numbers common to all machines since 424; a gap is a call that is refused.
_RECENT = ((424, 424), (434, 434), (436, 437), (439, 439), (441, 441), (444, 446), (449, 449), (452, 456), (462, 462))
_ALLOWED = {
    "x86_64": (
        *((0, 40), (42, 55), (57, 100), (102, 102), (104, 125), (127, 133), (137, 138), (140, 152), (157, 158)),
        *((160, 160), (186, 187), (191, 196), (200, 204), (213, 213), (217, 226), (228, 235), (240, 245), (247, 247)),
        *((251, 255), (257, 271), (273, 278), (280, 297), (299, 299), (302, 302), (307, 307), (309, 309), (314, 319)),
        *((322, 322), (324, 332), (334, 334)),
    ),
    "aarch64": (
        *((8, 13), (17, 17), (19, 38), (43, 50), (52, 57), (59, 59), (61, 80), (82, 88), (90, 90), (93, 96), (98, 103)),
        *((107, 111), (113, 115), (118, 141), (143, 160), (163, 169), (172, 197), (199, 216), (221, 223), (226, 233)),
        *((240, 240), (242, 243), (260, 261), (269, 269), (274, 279), (281, 281), (283, 291), (293, 293)),
    ),
}

_Row = tuple[int, int, int, int]


def _load(offset: int) -> _Row:
    return (_LOAD, 0, 0, offset)


def _give(value: int) -> _Row:
    return (_RETURN, 0, 0, value)


def _refuse(number: int) -> _Row:
    return _give(_ERROR | number)


def _when(number: int, body: list[_Row]) -> list[_Row]:
    """`body`, which must return, for the system call `number`."""
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _one_of(values: tuple[int, ...], otherwise: int) -> list[_Row]:
    """Allow when the first argument is one of `values`, else fail with `otherwise`."""
    tests = [(_JUMP_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_load(_FIRST_ARGUMENT), *tests, _refuse(otherwise), _give(_ALLOW)]


def filter_program(machine: str) -> bytes:
    """The filter as struct sock_filter rows for `machine` ('x86_64' or 'aarch64'; KeyError otherwise)."""
    special = _SPECIAL[machine]
    no_namespaces = [
        _load(_FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        _refuse(errno.EPERM),
        _give(_ALLOW),
    ]
    rows = [_load(_ARCHITECTURE), (_JUMP_EQUAL, 1, 0, _AUDIT[machine]), _give(_KILL_PROCESS), _load(_NUMBER)]
    for low, high in sorted((*_ALLOWED[machine], *_RECENT)):
        rows += [(_JUMP_AT_LEAST, 0, 2, low), (_JUMP_GREATER, 1, 0, high), _give(_ALLOW)]
    rows += _when(special["clone"], no_namespaces)
    rows += _when(special["clone3"], [_refuse(errno.ENOSYS)])
    rows += _when(special["socket"], _one_of(_FAMILIES, errno.EAFNOSUPPORT))
    rows += _when(special["personality"], _one_of(_PERSONALITIES, errno.EPERM))
    for number in _NO_ATTRIBUTES[machine]:
        rows += _when(number, [_refuse(errno.EOPNOTSUPP)])
    for number in _NO_SYNC[machine]:
        rows += _when(number, [_refuse(0)])
    rows.append(_refuse(errno.EPERM))
    return b"".join(struct.pack("HBBI", *row) for row in rows)
