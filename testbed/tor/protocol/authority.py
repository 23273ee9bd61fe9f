"""RSA keys and certificates of directory authorities, made from the topology's seed (dir-spec 3.1).

``tor-gencert`` makes the same files, but takes 0.6 to 1.3 s an authority for its 3072-bit identity, and never the same
ones twice. Short keys are enough here: 1024 bits is what dir-spec asks for at least.
"""

from __future__ import annotations

import base64
import hashlib
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    RSAPublicNumbers,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from testbed.tor.protocol.keys import derive

RSA_BITS = 1024
RSA_EXPONENT = 65537
CERTIFICATE_DAYS = 365
_SMALL_PRIMES = tuple(p for p in range(3, 2000, 2) if all(p % q for q in range(3, int(p**0.5) + 1, 2)))


def rsa_key(seed: int, label: str, bits: int = RSA_BITS) -> RSAPrivateKey:
    """The RSA key of ``label`` in a topology with this seed. Both primes have their two top bits set."""
    primes = _primes(seed, label, bits // 2)
    p = next(primes)
    q = next(prime for prime in primes if prime != p)
    d = pow(RSA_EXPONENT, -1, (p - 1) * (q - 1))
    numbers = RSAPrivateNumbers(
        p=p,
        q=q,
        d=d,
        dmp1=rsa_crt_dmp1(d, p),
        dmq1=rsa_crt_dmq1(d, q),
        iqmp=rsa_crt_iqmp(p, q),
        public_numbers=RSAPublicNumbers(RSA_EXPONENT, p * q),
    )
    return numbers.private_key()


def _primes(seed: int, label: str, bits: int) -> Iterator[int]:
    top = 0b11 << (bits - 2)
    attempt = 0
    while True:
        start = int.from_bytes(derive(seed, f"{label} prime {attempt}", bits // 8)) | top | 1
        attempt += 1
        residues = [start % small for small in _SMALL_PRIMES]
        for step in range(0, 4 * bits, 2):
            candidate = start + step
            if candidate.bit_length() > bits:
                break
            if any((residue + step) % small == 0 for residue, small in zip(residues, _SMALL_PRIMES, strict=True)):
                continue
            if candidate % RSA_EXPONENT != 1 and _probably_prime(candidate):
                yield candidate
                break


def _probably_prime(number: int) -> bool:
    """Miller-Rabin with the first twelve primes as bases: far beyond doubt for numbers that nobody has chosen."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, number)
        if x in (1, number - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % number
            if x == number - 1:
                break
        else:
            return False
    return True


def public_der(key: RSAPrivateKey) -> bytes:
    """The public key in PKCS#1 DER; tor's fingerprints are the SHA-1 of this."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)


def fingerprint(key: RSAPrivateKey) -> str:
    """40 upper-case hexadecimal digits."""
    return hashlib.sha1(public_der(key)).hexdigest().upper()  # noqa: S324  dir-spec says SHA-1


def private_pem(key: RSAPrivateKey) -> bytes:
    """PKCS#1 PEM, as in tor's ``keys`` folder."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _public_pem(key: RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1).decode()


def _sign(key: RSAPrivateKey, digest: bytes) -> bytes:
    """PKCS#1 v1.5 padding around the bare digest, without the DigestInfo that libraries put there (dir-spec 1.3)."""
    numbers = key.private_numbers()
    length = key.key_size // 8
    padded = b"\0\1" + b"\xff" * (length - 3 - len(digest)) + b"\0" + digest
    return pow(int.from_bytes(padded), numbers.d, numbers.public_numbers.n).to_bytes(length)


def _armour(label: str, content: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(content).decode(), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


@dataclass(frozen=True)
class Authority:
    """What one directory authority is known by, and the files that make tor take that part."""

    nickname: str
    identity: str
    """Fingerprint of its relay identity (RSA)."""
    v3_identity: str
    """Fingerprint of its authority identity, which signs the certificate of its signing key."""
    files: Mapping[str, bytes]
    """By path under the DataDirectory."""

    @property
    def certificate(self) -> bytes:
        """Its key certificate, which everybody needs to check a consensus."""
        return self.files["keys/authority_certificate"]


def make_authority(seed: int, nickname: str, now: float) -> Authority:
    """An authority of a topology with this seed. Everything but the dates in its certificate follows from the seed."""
    relay, identity, signing = (
        rsa_key(seed, f"authority {nickname} {use}") for use in ("relay identity", "authority identity", "signing")
    )
    return Authority(
        nickname=nickname,
        identity=fingerprint(relay),
        v3_identity=fingerprint(identity),
        files={
            "keys/secret_id_key": private_pem(relay),
            "keys/authority_signing_key": private_pem(signing),
            "keys/authority_certificate": certificate(identity, signing, now).encode(),
        },
    )


def certificate(identity: RSAPrivateKey, signing: RSAPrivateKey, now: float) -> str:
    """A key certificate (dir-spec 3.1) that is valid from an hour before ``now``, seconds since the epoch, UTC."""
    published = now - 3600
    identity_digest = hashlib.sha1(public_der(identity)).digest()  # noqa: S324
    body = (
        "dir-key-certificate-version 3\n"
        f"fingerprint {identity_digest.hex().upper()}\n"
        f"dir-key-published {_utc(published)}\n"
        f"dir-key-expires {_utc(published + CERTIFICATE_DAYS * 86400)}\n"
        f"dir-identity-key\n{_public_pem(identity)}"
        f"dir-signing-key\n{_public_pem(signing)}"
        f"dir-key-crosscert\n{_armour('ID SIGNATURE', _sign(signing, identity_digest))}"
        "dir-key-certification\n"
    )
    signature = _sign(identity, hashlib.sha1(body.encode()).digest())  # noqa: S324
    return body + _armour("SIGNATURE", signature)


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
