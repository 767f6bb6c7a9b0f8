/* For the original's servers, which cannot all be told where to listen: preloaded into a process, every interface means the loopback. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>

typedef int bind_function(int, const struct sockaddr *, socklen_t);

int bind(int descriptor, const struct sockaddr *wanted, socklen_t size) {
    static const unsigned char mapped_loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    bind_function *real = (bind_function *)dlsym(RTLD_NEXT, "bind");
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } changed;

    if (size > sizeof changed) return real(descriptor, wanted, size);
    memcpy(&changed, wanted, size);
    if (changed.any.sa_family == AF_INET && changed.v4.sin_addr.s_addr == INADDR_ANY)
        changed.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (changed.any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&changed.v6.sin6_addr))
        memcpy(&changed.v6.sin6_addr, mapped_loopback, sizeof mapped_loopback);
    return real(descriptor, &changed.any, size);
}
