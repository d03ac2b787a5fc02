/* A plug-in with one fault, which a macro chooses. Without a macro it loads. */
#include "nnhal_backend.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef SUPPORTS
#define SUPPORTS 0
#endif
#ifndef COMPILES
#define COMPILES NNHAL_GENERAL_FAILURE
#endif

static void destroy(NnhalBackend *self) { (void)self; }
static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t size) {
    (void)self, (void)one, (void)reason, (void)size;
    return SUPPORTS;
}
static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t size) {
    (void)self, (void)subgraph, (void)compiled, (void)reason, (void)size;
    return COMPILES;
}
static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t size) {
    (void)self, (void)compiled, (void)execution, (void)reason, (void)size;
    return NNHAL_GENERAL_FAILURE;
}
static void release(NnhalBackend *self, NnhalCompiled *compiled) { (void)self, (void)compiled; }
static void *allocate_buffer(NnhalBackend *self, size_t size) {
    (void)self;
    return malloc(size);
}

#ifdef CRASH_ON_LOAD
__attribute__((constructor)) static void crash(void) { raise(SIGSEGV); }
#endif
#ifdef HANG_ON_LOAD
__attribute__((constructor)) static void hang(void) { for (;;) pause(); }
#endif
#ifdef EXIT_ON_LOAD
__attribute__((constructor)) static void leave(void) { _exit(9); }
#endif
#ifdef UNDEFINED_SYMBOL
extern int no_such_function(void);
int call_it(void) { return no_such_function(); }
#endif

#ifndef NO_ID
const char *GetBackendId(void) {
#ifdef NULL_ID
    return NULL;
#endif
    return "Broken";
}
#endif

#ifndef NO_VERSION
void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
#ifdef NEXT_MAJOR
    ++*major;
#endif
#ifdef NEXT_MINOR
    ++*minor;
#endif
}
#endif

#ifdef NO_FACTORY
#define BackendFactory factory
void *factory(void);
#endif
void *BackendFactory(void) {
    (void)allocate_buffer;
    static NnhalBackend table = {.struct_size = sizeof table,
                                 .major = NNHAL_BACKEND_MAJOR,
                                 .minor = NNHAL_BACKEND_MINOR,
                                 .version = "1",
                                 .destroy = destroy,
                                 .supports = supports,
                                 .compile = compile,
                                 .execute = execute,
                                 .release = release};
#ifdef NOTHING
    return NULL;
#endif
#ifdef CRASH_IN_FACTORY
    abort();
#endif
#ifdef ANOTHER_VERSION
    table.minor = 7;
#endif
#ifdef NO_SIZE
    table.struct_size = 0;
#endif
#ifdef SMALL
    table.struct_size = offsetof(NnhalBackend, release);
#endif
#ifdef REQUIRED_ONLY
    table.struct_size = offsetof(NnhalBackend, capabilities);
    /* not within struct_size, so it must not be read */
    table.capabilities = (const NnhalCapability *(*)(NnhalBackend *, size_t *))1;
#endif
#ifdef NO_RELEASE
    table.release = NULL;
#endif
#ifdef NO_BACKEND_VERSION
    table.version = NULL;
#endif
#ifdef HALF_AN_ALLOCATOR
    table.allocate_buffer = allocate_buffer;
#endif
    return &table;
}
