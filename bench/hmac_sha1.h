// HMAC-SHA1 and its base64, by which clients sign what they ask: see RFC 2104, RFC 3174. For mqload alone, and for this machine's speed:
// the key is worked in once, a message costs its own blocks and two more.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SHA1_BLOCK = 64, SHA1_SIZE = 20, SIGNATURE_SIZE = 28 };
typedef struct { uint32_t h[5]; uint64_t length; uint8_t block[SHA1_BLOCK]; } sha1_state;
typedef struct { sha1_state inner, outer; } hmac_key;

static uint32_t sha1_rotate(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void sha1_take_block(sha1_state *s, const uint8_t *p) {
    uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 16; i++, p += 4) w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 80; i++) w[i] = sha1_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? ((b & c) | (~b & d)) + 0x5A827999u : i < 40 ? (b ^ c ^ d) + 0x6ED9EBA1u
                   : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8F1BBCDCu : (b ^ c ^ d) + 0xCA62C1D6u;
        uint32_t next = sha1_rotate(a, 5) + f + e + w[i];
        e = d; d = c; c = sha1_rotate(b, 30); b = a; a = next;
    }
    s->h[0] += a; s->h[1] += b; s->h[2] += c; s->h[3] += d; s->h[4] += e;
}

static void sha1_begin(sha1_state *s) { *s = (sha1_state){.h = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u}}; }

static void sha1_add(sha1_state *s, const uint8_t *data, size_t length) {
    size_t held = s->length % SHA1_BLOCK;
    s->length += length;
    if (held) {
        size_t part = SHA1_BLOCK - held < length ? SHA1_BLOCK - held : length;
        memcpy(s->block + held, data, part);
        data += part; length -= part;
        if (held + part < SHA1_BLOCK) return;
        sha1_take_block(s, s->block);
    }
    for (; length >= SHA1_BLOCK; data += SHA1_BLOCK, length -= SHA1_BLOCK) sha1_take_block(s, data);
    memcpy(s->block, data, length);
}

static void sha1_end(sha1_state *s, uint8_t digest[SHA1_SIZE]) {
    uint8_t pad[SHA1_BLOCK + 8] = {0x80};
    uint64_t bits = s->length * 8;
    size_t zeros = (SHA1_BLOCK + 55 - s->length % SHA1_BLOCK) % SHA1_BLOCK;
    for (int i = 0; i < 8; i++) pad[1 + zeros + i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_add(s, pad, 1 + zeros + 8);
    for (int i = 0; i < SHA1_SIZE; i++) digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

static void hmac_take_key(hmac_key *key, const char *secret) { // of at most a block
    uint8_t inner[SHA1_BLOCK] = {0}, outer[SHA1_BLOCK];
    memcpy(inner, secret, strnlen(secret, SHA1_BLOCK));
    for (int i = 0; i < SHA1_BLOCK; i++) { outer[i] = inner[i] ^ 0x5c; inner[i] ^= 0x36; }
    sha1_begin(&key->inner); sha1_add(&key->inner, inner, SHA1_BLOCK);
    sha1_begin(&key->outer); sha1_add(&key->outer, outer, SHA1_BLOCK);
}

// Writes the signature of both texts together, 28 characters of base64.
static void hmac_sign(const hmac_key *key, const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length, uint8_t *to) {
    uint8_t digest[SHA1_SIZE + 1];
    sha1_state s = key->inner;
    sha1_add(&s, a, a_length); sha1_add(&s, b, b_length); sha1_end(&s, digest);
    s = key->outer;
    sha1_add(&s, digest, SHA1_SIZE); sha1_end(&s, digest);
    digest[SHA1_SIZE] = 0;
    for (int i = 0; i <= SHA1_SIZE; i += 3, to += 4) {
        uint32_t bits = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | digest[i + 2];
        for (int j = 0; j < 4; j++) to[j] = (uint8_t)"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[bits >> (18 - 6 * j) & 63];
    }
    to[-1] = '=';
}
