"""Revision counters as tor itself makes them: order-preserving encryption of the time (rend-spec-v3 F.2). Pure.

OnionBalance 0.2.4 keys that cipher with the identity key where tor takes the blinded one. Its counters then grow like
tor's, but may be minutes ahead of them or behind, and HSDirs that hold the one kind refuse the other.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.tor.protocol.blinding import BlindedSigner


def tor_revision(signer: BlindedSigner, seconds: int) -> int:
    """The counter of a descriptor so many seconds after the start of its shared-random run (tor: crypto_ope_encrypt).

    For the current descriptor that is the previous run, for the next one the present run.
    """
    if seconds < 1:
        raise ValueError("a counter needs at least one second")
    key = hashlib.sha3_256(b"rev-counter-generation\0" + signer.secret).digest()
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(2 * seconds))
    return sum(stream[0::2]) + 256 * sum(stream[1::2]) + seconds
