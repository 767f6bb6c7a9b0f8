// mqload: a load generator for the RocketMQ remoting protocol, so that the generator is never the bottleneck.
//
//   cc -O2 -pthread -o mqload mqload.c          options: mqload -h
//
// One epoll loop per thread; each connection keeps up to `window` requests in flight. Requests freed by one read are
// sent again by one write, which is how a client looks that shares one channel among its threads; window 1 is one
// connection per thread. Latency runs from the moment a frame is handed to write() (or, in the open loop of -r, from
// the moment it was due) to the parse of its answer, matched by opaque, so answers may come in any order, however late.
// With -m e2e it runs from the moment a message was due to the parse of the pull's answer that brings it; with -m transaction from the
// half message to the answer to its end.
//
// Frames are built once and copied per request; only what differs is patched in place, so numbers have a fixed width.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "hmac_sha1.h"

enum { SEND, PULL, REQUEST, IDLE, E2E, TRANSACTION };
static const char *const MODES[] = {"send", "pull", "request", "idle", "e2e", "transaction"};
enum { WARMING, MEASURING, DRAINING, STOPPED }; // draining: what was due is sent, what was sent arrives
enum { FIELDS_MAX = 32, SIGNED_MAX = 8192, CODES_MAX = 16, FRAME_MAX = 64 << 20, DRAIN_S_MAX = 10 };
enum { FIRST_OPAQUE = 1000000000, OPAQUES = 1000000000 }; // all of ten digits
enum { PULL_NOT_FOUND = 19, PULL_RETRY_IMMEDIATELY = 20 };
enum { RECORD_QUEUE_OFFSET = 20, RECORD_BODY_LENGTH = 84, RECORD_BODY = 88, STAMP = 16 }; // of hosts with IPv4; stamp: due, run

// ---------------------------------------------------------------- options
static const char *o_topic = NULL, *o_label = "", *o_access_key, *o_fields[FIELDS_MAX][2], *o_properties[FIELDS_MAX][2]; // name, value
static int o_mode = SEND, o_port = 10911, o_connections = 64, o_window = 1, o_body = 256, o_threads = 1, o_queues = 8, o_batch = 32;
static int o_items; // messages per request of a batch (0: no batches)
static int o_topics = 1; // how many numbers take the place of %d in the topic's name
static int o_binary, o_json, o_pid, o_tagless, o_code = -1, o_version = 513, o_fields_count, o_properties_count, o_shuffled, o_filtered;
static long o_deliver_from = -1, o_deliver_to, o_later; // ms after now, or after it was sent, at which messages are to be delivered
static hmac_key g_key;
static double o_seconds = 5, o_warm_up = 1, o_rate;
static long o_count; // stop after this many answers (0: by time)

static void usage(void) {
    fprintf(stderr,
        "mqload [-m send|pull|request|idle|e2e|transaction] [options]\n"
        "  where   127.0.0.1  -p port (10911)  -c connections (64)  -w requests in flight per connection (1)  -t threads (1)\n"
        "  how     -b binary headers instead of JSON  -V version ordinal in them (513 = 5.5.0)  -r requests/s: open loop (0: closed loop)\n"
        "          -A key:secret  sign what is asked\n"
        "  how long  -W warm-up seconds (1)  -d measured seconds (5)  -N stop after so many answers instead, without warm-up\n"
        "  report  -P pid of the server, for its CPU use  -l label  -j one JSON line\n"
        "  send    SEND_MESSAGE_V2: -T topic (BenchmarkTest)  -q queues, 1 to 10 (8)  -s body bytes (256)  -g without TAGS\n"
        "          -B N: SEND_BATCH_MESSAGE of so many messages instead  -K N: topics, by numbers below N for %%d in -T, as -x says\n"
        "          -i name=value: a property, may be repeated; %%d in it as in -T  -D A-B: deliver A to B ms later (TIMER_DELIVER_MS)\n"
        "  transaction  half messages as by send, each committed (END_TRANSACTION) when it is answered; counted when that is\n"
        "  pull    PULL_MESSAGE: -T topic (BenchmarkTest)  -q queues (8)  -n messages per pull (32)\n"
        "          -f: by the subscription that the group's heartbeat told, going on where answers say; -w 1\n"
        "  request any code: -C code  -F name=value, may be repeated; %%d in a value is a number that counts from 0 below -T N\n"
        "          (1), in turn or, with -x, in random order; answers of any code and size are counted, by code\n"
        "  e2e     messages sent at -r a second as by send, and brought by pulls that wait, one per queue, all on one more connection;\n"
        "          latency is from when a message was due until it is there; with -D, or -e ms for a delay level, that is so much\n"
        "          later; early: so many came before that, off: how far off it they were, before or after\n"
        "  idle    open the connections, print READY, keep them until stdin closes\n"
        "examples\n"
        "  mqload -m request -C 105 -F topic=T%%d -T 10000 -x -p 9876 -c 64 -P $(pidof java)    routes of 10,000 topics\n"
        "  mqload -m request -C 9999 -p 9876 -c 1 -w 64 -b -j                                  what an unknown code costs\n"
        "  mqload -m send -T Orders -c 64 -s 1024 -r 20000                                     20,000 messages a second\n"
        "  mqload -m e2e -c 1 -w 1000 -r 5000                                                  how soon consumers have them\n"
        "exit status: 0 good, 1 usage, 2 system call failed, 3 closed by the server, 4 wrong or refused answers, lost messages (but request)\n");
    exit(1);
}

static int sends(void) { return o_mode == SEND || o_mode == E2E || o_mode == TRANSACTION; }
static void die(const char *what) { perror(what); exit(2); }
static void *must(void *memory) { if (!memory) die("memory"); return memory; }

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static void put32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }
static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
static void put_decimal(uint8_t *p, uint64_t v, int width) { while (width--) { p[width] = '0' + v % 10; v /= 10; } }
static uint64_t get_hex(const uint8_t *p, int width) {
    uint64_t v = 0;
    while (width--) { v = v << 4 | ((*p & 15) + (*p > '9' ? 9 : 0)); p++; }
    return v;
}
static void put_hex(uint8_t *p, uint64_t v, int width) { while (width--) { p[width] = "0123456789ABCDEF"[v & 15]; v >>= 4; } }

// ---------------------------------------------------------------- latencies: 64 buckets per power of two
enum { BUCKETS = 64 * 40 };
typedef struct { uint64_t n[BUCKETS], count, sum, max; } histogram;

static void record(histogram *h, uint64_t ns) {
    uint64_t x = ns < 64 ? 64 : ns;
    int shift = 63 - __builtin_clzll(x) - 6, i = shift * 64 + (int)((x >> shift) & 63);
    h->n[i < BUCKETS ? i : BUCKETS - 1]++;
    h->count++; h->sum += ns;
    if (ns > h->max) h->max = ns;
}
static double percentile_us(const histogram *h, double q) {
    uint64_t below = (uint64_t)(q * (double)h->count), seen = 0;
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += h->n[i]) > below) return (double)((64ull + (i & 63)) << (i >> 6)) / 1e3;
    return (double)h->max / 1e3;
}

// ---------------------------------------------------------------- frames
// Offsets of what is patched per request; 0: the frame has no such thing.
// What is signed is `content`, with what was patched, and the body; `parts` say where that is in both.
typedef struct {
    uint8_t *bytes, *content;
    int length, opaque, queue, born, unique, stride, offset, body, timer, commit; // stride: from item to item of a batch
    int signature, body_at, content_length, parts_count;
    struct { int from, to, width; } parts[4];
} frame;
typedef struct { int bytes, content; } place; // of a field's value
static frame *g_frames, g_pull, g_end; // one, or one per value of %d; what the consumer of e2e asks; what ends a transaction
static int g_frames_count;

static int add_text(uint8_t *to, const char *text, int length) { // JSON escapes; returns the bytes written
    int n = 0;
    for (int i = 0; i < length; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c < 32) n += sprintf((char *)to + n, "\\u%04x", c);
        else { if (c == '"' || c == '\\') to[n++] = '\\'; to[n++] = c; }
    }
    return n;
}

static int add_field(frame *f, int at, int first, const char *name, const char *value) { // returns where the value starts
    int name_length = (int)strlen(name), value_length = (int)strlen(value);
    uint8_t *p = f->bytes + at;
    if (o_binary) {
        put16(p, name_length); memcpy(p + 2, name, name_length);
        put32(p + 2 + name_length, value_length); memcpy(p + 6 + name_length, value, value_length);
        f->length = at + 6 + name_length + value_length;
        return at + 6 + name_length;
    }
    int value_at = at + sprintf((char *)p, "%s\"%s\":\"", first ? "" : ",", name);
    f->length = value_at + add_text(f->bytes + value_at, value, value_length);
    f->bytes[f->length++] = '"';
    return value_at;
}

// Has `width` bytes at a place patched per request, so many behind the value's start; returns where that is in the frame.
static int patched(frame *f, place value, int behind, int behind_signed, int width) {
    if (o_access_key) {
        f->parts[f->parts_count].from = value.bytes + behind;
        f->parts[f->parts_count].to = value.content + behind_signed;
        f->parts[f->parts_count++].width = width;
    }
    return value.bytes + behind;
}

// What the fields say in the order of their names; remembers where each value stands in it.
static void build_content(frame *f, const char *const (*fields)[2], int count, place *values) {
    f->content = must(calloc(1, SIGNED_MAX));
    for (const char *last = "";;) {
        int next = -1;
        for (int i = 0; i < count; i++)
            if (strcmp(fields[i][0], last) > 0 && (next < 0 || strcmp(fields[i][0], fields[next][0]) < 0)) next = i;
        if (next < 0) return;
        last = fields[next][0];
        int size = (int)strlen(fields[next][1]);
        if (f->content_length + size > SIGNED_MAX) usage();
        values[next].content = f->content_length;
        memcpy(f->content + f->content_length, fields[next][1], size);
        f->content_length += size;
    }
}

// Writes one frame with the given fields: {name, value} pairs, ended by a NULL; returns where each value starts.
static void build(frame *f, int code, const char *const (*plain)[2], place *values, int body) {
    const char *fields[FIELDS_MAX + 3][2];
    int room = 512 + body, count = 0;
    for (; plain[count][0]; count++) { fields[count][0] = plain[count][0]; fields[count][1] = plain[count][1]; }
    int given = count;
    if (o_access_key) {
        fields[count][0] = "AccessKey"; fields[count++][1] = o_access_key;
        build_content(f, (void *)fields, count, values);
        fields[count][0] = "Signature"; fields[count++][1] = "0000000000000000000000000000";
    }
    fields[count][0] = NULL;
    for (int i = 0; fields[i][0]; i++) room += (int)strlen(fields[i][0]) + 6 * (int)strlen(fields[i][1]) + 16;
    f->bytes = must(calloc(1, room));
    char *p = (char *)f->bytes;
    if (o_binary) {
        put16(f->bytes + 8, code); put16(f->bytes + 11, o_version);
        f->opaque = 13; f->length = 29;
    } else {
        f->length = 8 + sprintf(p + 8, "{\"code\":%d,\"extFields\":{", code);
    }
    for (int i = 0; fields[i][0]; i++) {
        int at = add_field(f, f->length, i == 0, fields[i][0], fields[i][1]);
        if (i < given) values[i].bytes = at; else f->signature = at; // the last of those that are added
    }
    if (o_binary) {
        put32(f->bytes + 25, f->length - 29);
    } else {
        f->length += sprintf(p + f->length, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
        f->opaque = f->length;
        f->length += sprintf(p + f->length, "%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}", FIRST_OPAQUE, o_version);
    }
    put32(f->bytes + 4, (o_binary ? 1u << 24 : 0) | (uint32_t)(f->length - 8));
    f->body_at = f->length;
    for (int i = 0; i < body; i++) // looks like text: neither constant nor random
        f->bytes[f->length++] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[(i * 7 + i / 64) & 63];
    put32(f->bytes, f->length - 4);
}

static int escaped_size(const char *text, int length) { // of the start of a text within a frame
    int size = length;
    for (int i = 0; i < length && !o_binary; i++) size += (uint8_t)text[i] < 32 ? 5 : text[i] == '"' || text[i] == '\\';
    return size;
}

static char *numbered(const char *text, int index) { // with the index in the place of %d
    const char *at = strstr(text, "%d");
    char *result;
    int made = at ? asprintf(&result, "%.*s%d%s", (int)(at - text), text, index, at + 2) : asprintf(&result, "%s", text);
    if (made < 0) die("memory");
    return result;
}

// The properties of a message: UNIQ_KEY is the first, TIMER_DELIVER_MS the last, if it has that.
static char *properties_of(int index) {
    char *text = must(malloc(SIGNED_MAX));
    int n = sprintf(text, "UNIQ_KEY\1" "7F0000010001251A69D73B1F00000000" "\2WAIT\1true\2%s%s", o_tagless ? "" : "TAGS\1TagA\2",
                    o_mode == TRANSACTION ? "TRAN_MSG\1true\2PGROUP\1benchmark_producer\2" : "");
    for (int i = 0; i < o_properties_count; i++) {
        char *value = numbered(o_properties[i][1], index);
        n += snprintf(text + n, SIGNED_MAX - n, "%s\1%s\2", o_properties[i][0], value);
        free(value);
        if (n > SIGNED_MAX - 64) usage();
    }
    if (o_deliver_from >= 0) sprintf(text + n, "TIMER_DELIVER_MS\1" "0000000000000" "\2");
    return text;
}

static void build_send(frame *f, const char *topic, int index) {
    char *properties = properties_of(index);
    int size = (int)strlen(properties), item = 22 + o_body + size;
    const char *const fields[][2] = {{"a", "benchmark_producer"}, {"b", topic}, {"c", "TBW102"}, {"d", "4"}, {"e", "0"},
        {"f", o_mode == TRANSACTION ? "4" : "0"}, {"g", "1700000000000"}, {"h", "0"}, {"i", o_items ? "WAIT\1true\2" : properties},
        {"j", "0"}, {"k", "false"}, {"m", o_items ? "true" : "false"}, {"n", "broker-a"}, {NULL, NULL}};
    place at[sizeof fields / sizeof *fields];
    build(f, o_items ? 320 : 310, fields, at, o_items ? o_items * item : o_body);
    f->queue = patched(f, at[4], 0, 0, 1); f->born = patched(f, at[6], 0, 0, 13); f->body = f->length - o_body;
    if (!o_items) f->unique = patched(f, at[8], escaped_size(properties, 9 + 24), 9 + 24, 8); // the last eight digits of the key
    if (!o_items && o_deliver_from >= 0) f->timer = patched(f, at[8], escaped_size(properties, size - 14), size - 14, 13);
    uint8_t *p = f->bytes + f->length - o_items * item;
    if (o_items) { f->unique = (int)(p - f->bytes) + 22 + o_body + 9 + 24; f->stride = item; }
    for (int i = 0; i < o_items; i++, p += item) {
        memset(p, 0, 20);
        put32(p, item); put32(p + 16, o_body);
        put16(p + 20 + o_body, size);
        memcpy(p + 22 + o_body, properties, size);
    }
    free(properties);
}

static void build_end(frame *f) { // END_TRANSACTION: its numbers and its id differ
    const char *const fields[][2] = {{"producerGroup", "benchmark_producer"}, {"tranStateTableOffset", "000000000000000000"},
        {"commitLogOffset", "000000000000000000"}, {"commitOrRollback", "8"}, {"fromTransactionCheck", "false"},
        {"msgId", "7F0000010001251A69D73B1F00000000"}, {"transactionId", "7F0000010001251A69D73B1F00000000"}, {NULL, NULL}};
    place at[sizeof fields / sizeof *fields];
    build(f, 37, fields, at, 0);
    f->offset = patched(f, at[1], 0, 0, 18); f->commit = patched(f, at[2], 0, 0, 18);
    f->unique = patched(f, at[6], 24, 24, 8);
}

static void build_pull(frame *f, const char *flags) {
    char batch[16];
    snprintf(batch, sizeof batch, "%d", o_batch);
    const char *const fields[][2] = {{"consumerGroup", "benchmark_consumer"}, {"topic", o_topic}, {"queueId", "0"},
        {"queueOffset", "0000000000000"}, {"maxMsgNums", batch}, {"sysFlag", flags}, {"commitOffset", "0"}, {"suspendTimeoutMillis", "15000"},
        {"subscription", "*"}, {"subVersion", "1700000000000"}, {"expressionType", "TAG"}, {NULL, NULL}};
    place at[sizeof fields / sizeof *fields];
    build(f, 11, fields, at, 0);
    f->queue = patched(f, at[2], 0, 0, 1); f->offset = patched(f, at[3], 0, 0, 13);
}

static void build_request(frame *f, int index) {
    const char *fields[FIELDS_MAX + 1][2] = {{NULL, NULL}};
    char *values[FIELDS_MAX];
    place at[FIELDS_MAX + 1];
    for (int i = 0; i < o_fields_count; i++) {
        fields[i][0] = o_fields[i][0];
        fields[i][1] = values[i] = numbered(o_fields[i][1], index);
    }
    build(f, o_code, fields, at, 0);
    for (int i = 0; i < o_fields_count; i++) free(values[i]);
}

static void build_frames(void) {
    g_frames_count = o_mode == REQUEST && o_topic ? atoi(o_topic) : o_mode == SEND || o_mode == TRANSACTION ? o_topics : 1;
    if (g_frames_count < 1) usage();
    if (!o_topic) o_topic = "BenchmarkTest";
    g_frames = must(calloc(g_frames_count, sizeof *g_frames));
    if (o_mode == PULL) build_pull(g_frames, o_filtered ? "0" : "4"); // with its subscription
    if (o_mode == E2E) build_pull(&g_pull, "6"); // and may wait
    if (o_mode == TRANSACTION) build_end(&g_end);
    for (int i = 0; i < g_frames_count; i++) {
        if (o_mode == REQUEST) build_request(&g_frames[i], i);
        if (!sends()) continue;
        char *topic = numbered(o_topic, i);
        build_send(&g_frames[i], topic, i);
        free(topic);
    }
}

// ---------------------------------------------------------------- connections
// A request in flight has a slot, and its opaque is a turn times the number of slots plus its slot's number: so an answer finds its
// request however late it comes, and one that comes twice is noticed.
typedef struct {
    int fd, wants_out, queue;
    uint32_t slots, free_count, turn, *free_slots, *slot_opaque;
    uint8_t *slot_ends; // whether what is in flight is the end of a transaction
    uint64_t pull_offset, *slot_sent_ns, *next_offsets; // next_offsets: those of e2e's consumer, whose slots are queues
    uint8_t *in, *out;
    size_t in_room, in_length, out_room, out_length, out_sent;
} connection;

typedef struct {
    pthread_t thread;
    int id, connections_count, epoll;
    connection *connections, *consumer; // consumer: of e2e
    uint64_t sent, arrived, answered, early, messages, requests, bytes, wrong, not_found, random;
    struct { int code; uint64_t count; } codes[CODES_MAX]; // the last one takes whatever found no room
    histogram latencies, off;
} worker;

static atomic_int g_phase;
static atomic_long g_answers;
static _Atomic uint64_t g_from_ns = UINT64_MAX, g_until_ns = UINT64_MAX; // which messages of e2e count, by when they were due
static uint64_t g_run; // tells messages of this run from others

static void open_connection(connection *c, int index, uint32_t slots) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(o_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if ((c->fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) die("socket");
    if (connect(c->fd, (void *)&address, sizeof address)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->queue = index % o_queues;
    if (o_mode == IDLE) return;
    c->slots = slots;
    c->slot_sent_ns = must(calloc(slots, sizeof *c->slot_sent_ns));
    c->slot_opaque = must(calloc(slots, sizeof *c->slot_opaque));
    c->slot_ends = must(calloc(slots, sizeof *c->slot_ends));
    c->free_slots = must(calloc(slots, sizeof *c->free_slots));
    while (c->free_count < slots) { c->free_slots[c->free_count] = slots - 1 - c->free_count; c->free_count++; }
    c->in = must(malloc(c->in_room = 1 << 18));
}

static const frame *next_frame(worker *w) {
    if (g_frames_count == 1) return g_frames;
    uint64_t i = w->sent + (uint64_t)w->id * (g_frames_count / o_threads);
    if (o_shuffled) { w->random ^= w->random << 13; w->random ^= w->random >> 7; w->random ^= w->random << 17; i = w->random; }
    return &g_frames[i % g_frames_count];
}

// Appends a frame to what the connection has to send, as what is in flight in that slot; returns where it is, to be patched and `signed_off`.
static uint8_t *append(connection *c, const frame *f, uint32_t slot, uint64_t sent_ns) {
    size_t needed = c->out_length + f->length;
    if (needed > c->out_room) c->out = must(realloc(c->out, c->out_room = needed * 2));
    uint8_t *p = c->out + c->out_length;
    memcpy(p, f->bytes, f->length);
    uint32_t opaque = FIRST_OPAQUE + c->turn * c->slots + slot;
    c->turn = (c->turn + 1) % (OPAQUES / c->slots);
    if (o_binary) put32(p + f->opaque, opaque); else put_decimal(p + f->opaque, opaque, 10);
    c->slot_sent_ns[slot] = sent_ns; c->slot_opaque[slot] = opaque;
    c->out_length += f->length;
    return p;
}

static void signed_off(const frame *f, uint8_t *p) {
    if (!o_access_key) return;
    uint8_t content[SIGNED_MAX];
    memcpy(content, f->content, f->content_length);
    for (int i = 0; i < f->parts_count; i++) memcpy(content + f->parts[i].to, p + f->parts[i].from, f->parts[i].width);
    hmac_sign(&g_key, content, f->content_length, p + f->body_at, f->length - f->body_at, p + f->signature);
}

// When a message is to be delivered, by the wall and by the clock that latencies are counted by.
static uint64_t deliver_ms(const worker *w, uint64_t *due_ns) {
    uint64_t wall = clock_ns(CLOCK_REALTIME), spread = (uint64_t)(o_deliver_to - o_deliver_from) + 1;
    uint64_t at_ms = wall / 1000000 + o_deliver_from + w->sent * 7919 % spread;
    *due_ns = now_ns() + (at_ms * 1000000 - wall);
    return at_ms;
}

// Appends one request to what the connection has to send.
static void emit(worker *w, connection *c, uint64_t sent_ns) {
    const frame *f = c->next_offsets ? &g_pull : next_frame(w);
    uint32_t slot = c->free_slots[--c->free_count];
    uint8_t *p = append(c, f, slot, sent_ns);
    if (c->next_offsets) {
        p[f->queue] = '0' + slot;
        put_decimal(p + f->offset, c->next_offsets[slot], 13); // leading zeros: every integer parser takes them
    } else if (o_mode == PULL) {
        p[f->queue] = '0' + c->queue;
        put_decimal(p + f->offset, c->pull_offset, 13);
        if (!o_filtered) c->pull_offset += o_batch;
    } else if (sends()) {
        uint64_t due_ns = sent_ns + (uint64_t)o_later * 1000000;
        p[f->queue] = '0' + (w->sent + (g_frames_count > 1 ? w->sent / g_frames_count : 0)) % o_queues; // a topic's queues take turns
        put_decimal(p + f->born, clock_ns(CLOCK_REALTIME) / 1000000, 13);
        for (int i = 0; i < (o_items ? o_items : 1); i++)
            put_hex(p + f->unique + i * f->stride, (o_items ? w->sent * o_items + i : w->sent) + ((uint64_t)w->id << 28), 8);
        if (f->timer) put_decimal(p + f->timer, deliver_ms(w, &due_ns), 13);
        if (o_mode == E2E) { memcpy(p + f->body, &due_ns, 8); memcpy(p + f->body + 8, &g_run, 8); }
    }
    signed_off(f, p);
    w->sent += !c->next_offsets;
}

static void flush(worker *w, connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) { if (errno == EAGAIN) break; die("send"); }
        c->out_sent += n;
    }
    int wants_out = c->out_sent < c->out_length;
    if (!wants_out) c->out_sent = c->out_length = 0;
    if (wants_out == c->wants_out) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(w->epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_out = wants_out;
}

// ---------------------------------------------------------------- answers
static long number_after(const uint8_t *header, size_t length, const char *key) {
    const uint8_t *end = header + length, *p = memmem(header, length, key, strlen(key));
    if (!p) return -1;
    for (p += strlen(key); p < end && (*p == ' ' || *p == '"');) p++;
    int negative = p < end && *p == '-';
    long value = 0;
    for (p += negative; p < end && *p >= '0' && *p <= '9'; p++) value = value * 10 + (*p - '0');
    return negative ? -value : value;
}

static void complain(worker *w, const char *what, long number, const uint8_t *header, uint32_t length) {
    if (w->wrong++ < 3) fprintf(stderr, "mqload: %s %ld: %.*s\n", what, number, (int)(length < 300 ? length : 300), header);
}

static void count_code(worker *w, int code, uint64_t count) {
    int i = 0;
    while (i < CODES_MAX - 1 && w->codes[i].count && w->codes[i].code != code) i++;
    w->codes[i].code = i < CODES_MAX - 1 ? code : -1;
    w->codes[i].count += count;
}

// A message of e2e is there: `record` has it.
static void arrive(worker *w, const uint8_t *record_bytes, uint64_t now) {
    uint64_t due_ns, run;
    if (get32(record_bytes + RECORD_BODY_LENGTH) < STAMP) return;
    memcpy(&due_ns, record_bytes + RECORD_BODY, 8); memcpy(&run, record_bytes + RECORD_BODY + 8, 8);
    if (run != g_run) return;
    w->arrived++;
    if (due_ns < atomic_load(&g_from_ns) || due_ns > atomic_load(&g_until_ns)) return;
    if (now < due_ns) w->early++;
    record(&w->latencies, now < due_ns ? 0 : now - due_ns);
    record(&w->off, now < due_ns ? due_ns - now : now - due_ns);
    w->messages++;
}

// Walks the records of a pull's answer; returns how many there are. `next_offset` is where e2e's consumer goes on.
static uint64_t take_records(worker *w, const uint8_t *body, const uint8_t *end, uint64_t *next_offset, uint64_t now) {
    uint64_t records = 0;
    while (end - body >= RECORD_BODY) {
        uint32_t size = get32(body);
        if (get32(body + 4) != 0xDAA320A7 || size < 91 || size > end - body) break;
        if (next_offset) { *next_offset = get64(body + RECORD_QUEUE_OFFSET) + 1; arrive(w, body, now); }
        records++; body += size;
    }
    if (body != end) complain(w, "not a record, bytes left", end - body, body, 0);
    return records;
}

// A half message is stored where its answer says: commits it, in the same slot. Returns whether the answer says that.
static int commit_half(connection *c, uint32_t slot, const uint8_t *header, uint32_t length) {
    const uint8_t *id = memmem(header, length, "\"msgId\":\"", 9), *key = memmem(header, length, "\"transactionId\":\"", 17);
    long offset = number_after(header, length, "\"queueOffset\":");
    if (!id || !key || offset < 0 || id + 9 + 32 > header + length || key + 17 + 32 > header + length) return 0;
    uint8_t *p = append(c, &g_end, slot, c->slot_sent_ns[slot]);
    put_decimal(p + g_end.offset, offset, 18);
    put_decimal(p + g_end.commit, get_hex(id + 9 + 16, 16), 18);
    memcpy(p + g_end.unique, key + 17 + 24, 8);
    signed_off(&g_end, p);
    return 1;
}

// Settles the request that this frame answers; returns how many were settled, 1 or 0.
static int on_answer(worker *w, connection *c, const uint8_t *f, uint32_t length, uint64_t now, int phase) {
    uint32_t header_length = get32(f + 4) & 0xffffff;
    const uint8_t *header = f + 8;
    int binary = f[4] == 1;
    long code = binary ? (int16_t)(header[0] << 8 | header[1]) : number_after(header, header_length, "\"code\":");
    long opaque = binary ? get32(header + 5) : number_after(header, header_length, "\"opaque\":");
    uint32_t slot = ((uint32_t)opaque - FIRST_OPAQUE) % c->slots;
    if (c->slot_opaque[slot] != (uint32_t)opaque) { complain(w, "no request in flight has opaque", opaque, header, header_length); return 0; }
    if (o_mode == TRANSACTION && (c->slot_ends[slot] = !c->slot_ends[slot] && code == 0)) {
        if (!commit_half(c, slot, header, header_length)) { fprintf(stderr, "mqload: no half message: %.*s\n", (int)header_length, header); exit(4); }
        if (phase == MEASURING) { count_code(w, (int)code, 1); w->requests++; w->bytes += length + 4; }
        return 0;
    }
    c->slot_opaque[slot] = 0; c->free_slots[c->free_count++] = slot;
    w->answered += code == 0 && !c->next_offsets;
    if (c->next_offsets) {
        if (code == 0) take_records(w, header + header_length, f + 4 + length, &c->next_offsets[slot], now);
        else if (code != PULL_NOT_FOUND && code != PULL_RETRY_IMMEDIATELY) complain(w, "code", code, header, header_length);
        return 1;
    }
    uint64_t messages = o_mode == SEND && o_items ? (uint64_t)o_items : 1;
    if (o_mode == PULL) {
        messages = code == 0 ? take_records(w, header + header_length, f + 4 + length, NULL, now) : 0;
        if (code != 0) w->not_found++;
        long next = o_filtered ? number_after(header, header_length, "\"nextBeginOffset\":") : -1;
        if (next >= 0 && next < number_after(header, header_length, "\"maxOffset\":")) c->pull_offset = (uint64_t)next;
        else if (messages < (uint64_t)o_batch || next >= 0) c->pull_offset = 0; // the end of the queue: start over
        if (o_filtered && code == PULL_RETRY_IMMEDIATELY) return 1; // nothing there that the filter wants
    } else if (sends() && code != 0) {
        complain(w, "code", code, header, header_length);
    }
    if (phase != MEASURING) return 1;
    count_code(w, (int)code, 1);
    w->requests++; w->bytes += length + 4;
    if (o_mode == E2E) return 1; // what counts is the arrival
    record(&w->latencies, now - c->slot_sent_ns[slot]);
    w->messages += messages;
    return 1;
}

static int read_answers(worker *w, connection *c, uint64_t now, int phase) { // returns how many requests were settled
    ssize_t n = recv(c->fd, c->in + c->in_length, c->in_room - c->in_length, 0);
    if (n == 0) { fprintf(stderr, "mqload: closed by the server\n"); exit(3); }
    if (n < 0) { if (errno != EAGAIN) die("recv"); return 0; }
    c->in_length += n;
    size_t at = 0;
    int settled = 0;
    while (c->in_length - at >= 8) {
        uint32_t length = get32(c->in + at);
        if (length > FRAME_MAX) { fprintf(stderr, "mqload: not a frame, its length is %u\n", length); exit(4); }
        if (length + 4 > c->in_room) c->in = must(realloc(c->in, c->in_room = 2 * (length + 4)));
        if (c->in_length - at < length + 4) break;
        settled += on_answer(w, c, c->in + at, length, now, phase);
        at += length + 4;
    }
    memmove(c->in, c->in + at, c->in_length -= at);
    if (o_count && settled && atomic_fetch_add(&g_answers, settled) + settled >= o_count) atomic_store(&g_phase, STOPPED);
    return settled;
}

// ---------------------------------------------------------------- the loop of a thread
static void watch(worker *w, int fd, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static int open_timer(double rate) { // ticks when a request is due: between ticks the core is the server's
    prctl(PR_SET_TIMERSLACK, 1);
    long tick_ns = rate > 1 ? (long)(1e9 / rate) : 999999999;
    struct itimerspec ticks = {.it_interval.tv_nsec = tick_ns, .it_value.tv_nsec = tick_ns};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer < 0 || timerfd_settime(timer, 0, &ticks, NULL)) die("timerfd");
    return timer;
}

static void fill_window(worker *w, connection *c) {
    while (c->free_count) emit(w, c, now_ns());
    flush(w, c);
}

// Sends what the schedule wants by now; returns whether it is all that there will be.
static int send_due(worker *w, uint64_t start, double rate, int *next) {
    uint64_t until = atomic_load(&g_until_ns), now = now_ns(), due = (uint64_t)(((now < until ? now : until) - start) * 1e-9 * rate);
    for (int full = 0; w->sent < due && full < w->connections_count; *next = (*next + 1) % w->connections_count) {
        connection *c = &w->connections[*next];
        if (!c->free_count) { full++; continue; }
        full = 0;
        emit(w, c, start + (uint64_t)(w->sent * 1e9 / rate));
        flush(w, c);
    }
    return now >= until && w->sent >= due;
}

static void *run(void *argument) {
    worker *w = argument;
    struct epoll_event events[256];
    double rate = o_rate / o_threads;
    for (int i = 0; i < w->connections_count; i++) watch(w, w->connections[i].fd, &w->connections[i]);
    for (int i = 0; i < w->connections_count && !rate; i++) fill_window(w, &w->connections[i]);
    if (w->consumer) { watch(w, w->consumer->fd, w->consumer); fill_window(w, w->consumer); }
    int timer = rate ? open_timer(rate) : -1, next = 0, phase;
    if (rate) watch(w, timer, NULL);
    uint64_t start = now_ns(), ticks;
    while ((phase = atomic_load_explicit(&g_phase, memory_order_relaxed)) != STOPPED) {
        int ready = epoll_wait(w->epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (!c) { if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timerfd"); continue; }
            if (events[i].events & ~EPOLLOUT) {
                uint64_t now = now_ns();
                for (int settled = read_answers(w, c, now, phase); settled-- && (!rate || c == w->consumer);) emit(w, c, now);
            }
            flush(w, c);
        }
        if (rate && send_due(w, start, rate, &next) && phase == DRAINING) {
            uint64_t late_ns = DRAIN_S_MAX * 1000000000ull + 1000000ull * (o_deliver_to > o_later ? o_deliver_to : o_later);
            if (w->arrived < w->sent && now_ns() - atomic_load(&g_until_ns) < late_ns) continue;
            if (w->arrived != w->sent) complain(w, "messages that did not arrive, or twice:", (long)(w->sent - w->arrived), (void *)"", 0);
            atomic_store(&g_phase, STOPPED);
        }
    }
    return NULL;
}

// Where the consumer of e2e begins: at the end of each queue, which the server tells.
static uint64_t end_offset(int fd, int queue) {
    char number[16];
    uint8_t answer[4096] = {0};
    size_t length = 0;
    snprintf(number, sizeof number, "%d", queue);
    const char *const fields[][2] = {{"topic", o_topic}, {"queueId", number}, {NULL, NULL}};
    frame f = {0};
    place at[3];
    build(&f, 30, fields, at, 0); // GET_MAX_OFFSET
    signed_off(&f, f.bytes);
    if (send(fd, f.bytes, f.length, MSG_NOSIGNAL) != f.length) die("send");
    free(f.bytes);
    while (length < 8 || length < get32(answer) + 4) {
        ssize_t n = recv(fd, answer + length, sizeof answer - length, 0);
        if (n < 0 && errno == EAGAIN) { usleep(100); continue; }
        if (n <= 0) { fprintf(stderr, "mqload: closed by the server\n"); exit(3); }
        length += n;
    }
    long offset = number_after(answer + 8, length - 8, "\"offset\":");
    if (offset < 0) { fprintf(stderr, "mqload: no end of queue %d: %.*s\n", queue, (int)length - 8, answer + 8); exit(4); }
    return (uint64_t)offset;
}

static connection *open_consumer(void) {
    connection *c = must(calloc(1, sizeof *c));
    open_connection(c, 0, o_queues);
    c->next_offsets = must(calloc(o_queues, sizeof *c->next_offsets));
    for (int queue = 0; queue < o_queues; queue++) c->next_offsets[queue] = end_offset(c->fd, queue);
    return c;
}

// ---------------------------------------------------------------- CPU time
typedef struct { double server_user, server_system, own, busy, stolen; uint64_t at_ns; } usage_sample; // seconds

static usage_sample sample_usage(void) {
    usage_sample s = {.at_ns = now_ns()};
    double hz = (double)sysconf(_SC_CLK_TCK);
    unsigned long user, nice, system, idle, io, irq, soft_irq, stolen;
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", o_pid);
    FILE *f = o_pid ? fopen(path, "r") : NULL;
    if (o_pid && !f) die(path);
    if (f) {
        line[fread(line, 1, sizeof line - 1, f)] = 0;
        fclose(f);
        if (sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) die(path);
        s.server_user = user / hz; s.server_system = system / hz;
    }
    if ((f = fopen("/proc/stat", "r"))) {
        if (fscanf(f, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", &user, &nice, &system, &idle, &io, &irq, &soft_irq, &stolen) == 8) {
            s.busy = (user + nice + system + irq + soft_irq) / hz; s.stolen = stolen / hz;
        }
        fclose(f);
    }
    s.own = clock_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9;
    return s;
}

// ---------------------------------------------------------------- report
static void report(const worker *t, const usage_sample *a, const usage_sample *b) {
    double s = (b->at_ns - a->at_ns) * 1e-9, user = b->server_user - a->server_user, system = b->server_system - a->server_system;
    double own = b->own - a->own, other = b->busy - a->busy - own - user - system;
    double per_message = t->messages ? 1e6 / t->messages : 0, per_request = t->requests ? 1e6 / t->requests : 0;
    const histogram *h = &t->latencies;
    char codes[CODES_MAX * 40] = "";
    for (int i = 0, n = 0; i < CODES_MAX; i++)
        if (t->codes[i].count) n += sprintf(codes + n, "%s\"%d\":%lu", n ? "," : "", t->codes[i].code, t->codes[i].count);
    printf(o_json
        ? "{\"label\":\"%s\",\"mode\":\"%s\",\"connections\":%d,\"window\":%d,\"binary\":%s,\"messages_per_s\":%.0f,\"requests_per_s\":%.0f,"
          "\"bytes_per_answer\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,\"mean_us\":%.1f,"
          "\"server_cpu\":%.3f,\"server_us_per_message\":%.3f,\"server_us_per_request\":%.3f,\"server_user_us_per_request\":%.3f,"
          "\"generator_cpu\":%.3f,\"other_cpu\":%.3f,\"stolen_cpu\":%.3f,\"wrong\":%lu,\"not_found\":%lu,\"codes\":{%s},\"seconds\":%.3f,"
          "\"sent\":%lu,\"answered\":%lu,\"early\":%lu,\"off_p50_us\":%.1f,\"off_p99_us\":%.1f}\n"
        : "%s %s %d connections x %d, binary %s: %.0f messages/s, %.0f requests/s, %.1f bytes/answer | "
          "p50 %.1f p99 %.1f p99.9 %.1f max %.1f mean %.1f us | server %.3f cores, %.3f us/message, %.3f us/request (%.3f user) | "
          "generator %.3f, others %.3f, stolen %.3f cores | wrong %lu, not found %lu, codes %s, %.3f s | "
          "sent %lu, answered %lu, early %lu, off p50 %.1f p99 %.1f us\n",
        o_label, MODES[o_mode], o_connections, o_window, o_binary ? "true" : "false", t->messages / s, t->requests / s,
        t->requests ? (double)t->bytes / t->requests : 0, percentile_us(h, .5), percentile_us(h, .99), percentile_us(h, .999), h->max / 1e3,
        h->count ? h->sum / 1e3 / h->count : 0, (user + system) / s, (user + system) * per_message, (user + system) * per_request,
        user * per_request, own / s, other / s, (b->stolen - a->stolen) / s, t->wrong, t->not_found, codes, s,
        t->sent, t->answered, t->early, percentile_us(&t->off, .5), percentile_us(&t->off, .99));
}

static void merge_latencies(histogram *total, const histogram *h) {
    for (int i = 0; i < BUCKETS; i++) total->n[i] += h->n[i];
    total->count += h->count; total->sum += h->sum;
    if (h->max > total->max) total->max = h->max;
}

static void merge(worker *total, const worker *w) {
    merge_latencies(&total->latencies, &w->latencies);
    merge_latencies(&total->off, &w->off);
    total->sent += w->sent; total->answered += w->answered; total->early += w->early;
    total->messages += w->messages; total->requests += w->requests; total->bytes += w->bytes;
    total->wrong += w->wrong; total->not_found += w->not_found;
    for (int i = 0; i < CODES_MAX && w->codes[i].count; i++) count_code(total, w->codes[i].code, w->codes[i].count);
}

static int parse_mode(const char *name) {
    for (int mode = SEND; mode <= TRANSACTION; mode++)
        if (!strcmp(name, MODES[mode])) return mode;
    usage();
    return -1;
}

static void add_pair(char *pair, const char *(*pairs)[2], int *count) {
    char *equals = strchr(pair, '=');
    if (!equals || *count == FIELDS_MAX) usage();
    *equals = 0;
    pairs[*count][0] = pair;
    pairs[(*count)++][1] = equals + 1;
}

static void take_key(char *pair) {
    char *colon = strchr(pair, ':');
    if (!colon || strlen(colon + 1) > SHA1_BLOCK) usage();
    *colon = 0;
    o_access_key = pair;
    hmac_take_key(&g_key, colon + 1);
}

static void take_range(const char *range) {
    if (sscanf(range, "%ld-%ld", &o_deliver_from, &o_deliver_to) != 2 || o_deliver_from < 0 || o_deliver_to < o_deliver_from) usage();
}

static void parse_options(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "p:m:c:w:s:d:W:t:T:K:q:n:B:br:N:P:gl:jC:F:xV:hi:D:e:A:f")) != -1) switch (option) {
        case 'K': o_topics = atoi(optarg); break;        case 'p': o_port = atoi(optarg); break;
        case 'm': o_mode = parse_mode(optarg); break;    case 'c': o_connections = atoi(optarg); break;
        case 'w': o_window = atoi(optarg); break;        case 's': o_body = atoi(optarg); break;
        case 'd': o_seconds = atof(optarg); break;       case 'W': o_warm_up = atof(optarg); break;
        case 't': o_threads = atoi(optarg); break;       case 'T': o_topic = optarg; break;
        case 'q': o_queues = atoi(optarg); break;        case 'n': o_batch = atoi(optarg); break;
        case 'b': o_binary = 1; break;                   case 'r': o_rate = atof(optarg); break;
        case 'N': o_count = atol(optarg); break;         case 'P': o_pid = atoi(optarg); break;
        case 'g': o_tagless = 1; break;                  case 'l': o_label = optarg; break;
        case 'j': o_json = 1; break;                     case 'C': o_code = atoi(optarg); break;
        case 'F': add_pair(optarg, o_fields, &o_fields_count); break;
        case 'i': add_pair(optarg, o_properties, &o_properties_count); break;
        case 'x': o_shuffled = 1; break;                 case 'f': o_filtered = 1; break;
        case 'D': take_range(optarg); break;             case 'e': o_later = atol(optarg); break;
        case 'A': take_key(optarg); break;
        case 'V': o_version = atoi(optarg); break;        case 'B': o_items = atoi(optarg); break;
        default: usage();
    }
    if (o_queues > 10 || o_queues < 1 || o_connections < 1 || o_window < 1 || o_threads < 1 || o_body < 0 || o_items < 0 || (o_mode == REQUEST && o_code < 0)) usage();
    if (o_mode == E2E && (o_rate <= 0 || o_body < STAMP || o_items || o_count || o_binary)) usage();
    if (o_mode == E2E) o_threads = 1;
    if ((o_filtered && (o_mode != PULL || o_window != 1 || o_binary)) || (o_mode == TRANSACTION && (o_items || o_binary)) || o_later < 0) usage();
    if (o_items && o_deliver_from >= 0) usage();
    if (o_threads > o_connections) o_threads = o_connections;
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    build_frames();
    connection *connections = must(calloc(o_connections, sizeof *connections));
    for (int i = 0; i < o_connections; i++) open_connection(&connections[i], i, o_window);
    if (o_mode == IDLE) {
        printf("READY %d\n", o_connections);
        fflush(stdout);
        for (char byte; read(0, &byte, 1) > 0;) {}
        return 0;
    }
    worker *workers = must(calloc(o_threads, sizeof *workers)), *total = must(calloc(1, sizeof *total));
    for (int i = 0, first = 0; i < o_threads; first += workers[i++].connections_count) {
        worker *w = &workers[i];
        *w = (worker){.id = i, .connections = connections + first, .random = 88172645463325252u + i,
                      .connections_count = o_connections / o_threads + (i < o_connections % o_threads), .epoll = epoll_create1(0),
                      .consumer = o_mode == E2E ? open_consumer() : NULL};
        if (w->epoll < 0) die("epoll_create1");
    }
    g_run = clock_ns(CLOCK_REALTIME) ^ (uint64_t)getpid() << 48;
    if (o_count) atomic_store(&g_phase, MEASURING);
    usage_sample before = sample_usage();
    for (int i = 0; i < o_threads; i++)
        if ((errno = pthread_create(&workers[i].thread, NULL, run, &workers[i]))) die("pthread_create");
    if (!o_count) {
        usleep((useconds_t)(o_warm_up * 1e6));
        before = sample_usage();
        atomic_store(&g_from_ns, before.at_ns);
        atomic_store(&g_phase, MEASURING);
        usleep((useconds_t)(o_seconds * 1e6));
    }
    while (o_count && atomic_load(&g_phase) != STOPPED) usleep(1000);
    usage_sample after = sample_usage();
    atomic_store(&g_until_ns, after.at_ns);
    atomic_store(&g_phase, o_mode == E2E ? DRAINING : STOPPED);
    for (int i = 0; i < o_threads; i++) { pthread_join(workers[i].thread, NULL); merge(total, &workers[i]); }
    report(total, &before, &after);
    return total->wrong ? 4 : 0;
}
