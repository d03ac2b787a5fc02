/* The interpreter behind a C library: joins the one of its process, or starts one; and calls into it.
 *
 * All functions of Python are found by name at run time, so that one library serves hosts with any version of Python,
 * and none. They belong to Python's stable ABI, except PyOS_*Fork*.
 */

#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NNHAL_PYTHON_LIBRARY
#define NNHAL_PYTHON_LIBRARY ""
#endif
#ifndef NNHAL_PYTHON_PROGRAM
#define NNHAL_PYTHON_PROGRAM ""
#endif
#ifndef NNHAL_PYTHON_PATHS
#define NNHAL_PYTHON_PATHS ""
#endif
#ifndef NNHAL_PYTHON_VERSION
#define NNHAL_PYTHON_VERSION ""
#endif

typedef void Object;

/* ---- Functions of Python -------------------------------------------------------------------------------------- */

typedef struct {
    const char* name;
    Object* (*function)(Object* self, Object* arguments);
    int flags;
    const char* documentation;
} MethodDefinition;

enum { METH_NOARGS = 4, READ_VIEW = 0x100, WRITE_VIEW = 0x200, LOCK_HELD = 0, LOCK_TAKEN = 1 };

#define PYTHON_FUNCTIONS(F)                                                                    \
    F(int, Py_IsInitialized, (void))                                                           \
    F(void, Py_InitializeEx, (int))                                                            \
    F(const char*, Py_GetVersion, (void))                                                      \
    F(wchar_t*, Py_DecodeLocale, (const char*, size_t*))                                       \
    F(int, PyGILState_Ensure, (void))                                                          \
    F(void, PyGILState_Release, (int))                                                         \
    F(void*, PyGILState_GetThisThreadState, (void))                                            \
    F(int, PyGILState_Check, (void))                                                           \
    F(void*, PyEval_SaveThread, (void))                                                        \
    F(void, PyOS_BeforeFork, (void))                                                           \
    F(void, PyOS_AfterFork_Parent, (void))                                                     \
    F(void, PyOS_AfterFork_Child, (void))                                                      \
    F(Object*, PyImport_ImportModule, (const char*))                                           \
    F(Object*, PyObject_GetAttrString, (Object*, const char*))                                 \
    F(Object*, PyObject_CallFunction, (Object*, const char*, ...))                             \
    F(Object*, PyObject_Vectorcall, (Object*, Object* const*, size_t, Object*))                \
    F(Object*, PyCFunction_NewEx, (MethodDefinition*, Object*, Object*))                       \
    F(Object*, PyLong_FromLongLong, (long long))                                               \
    F(Object*, PyLong_FromUnsignedLongLong, (unsigned long long))                              \
    F(long long, PyLong_AsLongLong, (Object*))                                                 \
    F(unsigned long long, PyLong_AsUnsignedLongLong, (Object*))                                \
    F(Object*, PyFloat_FromDouble, (double))                                                   \
    F(Object*, PyBytes_FromStringAndSize, (const char*, long))                                 \
    F(int, PyBytes_AsStringAndSize, (Object*, char**, long*))                                  \
    F(Object*, PyMemoryView_FromMemory, (char*, long, int))                                    \
    F(long, PyTuple_Size, (Object*))                                                           \
    F(Object*, PyTuple_GetItem, (Object*, long))                                               \
    F(int, PyRun_SimpleString, (const char*))                                                  \
    F(Object*, PyErr_Occurred, (void))                                                         \
    F(void, PyErr_Print, (void))                                                               \
    F(void, PyErr_Clear, (void))                                                               \
    F(void, Py_IncRef, (Object*))                                                              \
    F(void, Py_DecRef, (Object*))

static struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    PYTHON_FUNCTIONS(MEMBER)
#undef MEMBER
    void (*Py_SetProgramName)(const wchar_t*); /* gone in Python 3.15 */
    Object* none;
} python;

/* ---- State ---------------------------------------------------------------------------------------------------- */

static _Atomic int ready = 0;    /* the functions below can be called */
static _Atomic int finished = 0; /* the interpreter has ended, or is about to */
static bool owns_interpreter = false;
static Object** functions = NULL; /* in the order of the table of functions */
static Object* shut_down = NULL;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_key;
static __thread bool is_attached = false;
static __thread bool holds_fork = false;
static __thread int fork_lock = LOCK_HELD;

static void report(const char* what, const char* detail) {
    fprintf(stderr, "%s: %s%s%s\n", THIS_LIBRARY.name, what, *detail ? ": " : "", detail);
}

static const char* setting(const char* variable, const char* otherwise) {
    const char* value = getenv(variable);
    return value != NULL && *value != '\0' ? value : otherwise;
}

/* ---- Threads -------------------------------------------------------------------------------------------------- */

/* A thread that Python does not know gets a state when it first calls, and keeps it until it ends: creating one for
 * each call takes as long as the call. */

static void detach_thread(void* unused) {
    (void)unused;
    if (atomic_load(&finished)) return;
    python.PyGILState_Ensure();
    python.PyGILState_Release(LOCK_HELD);  /* of this Ensure */
    python.PyGILState_Release(LOCK_TAKEN); /* of attach_thread: deletes the state */
}

static void attach_thread(void) {
    is_attached = true;
    if (python.PyGILState_GetThisThreadState() != NULL) return;
    python.PyGILState_Ensure();
    python.PyEval_SaveThread();
    pthread_setspecific(thread_key, &thread_key);
}

/* ---- Fork ----------------------------------------------------------------------------------------------------- */

/* A host in C forks as Python does: with Python's lock held, so that the child gets a usable interpreter. In a Python
 * host that forks by itself, the lock is held already. */

static void before_fork(void) {
    holds_fork = false;
    if (!atomic_load(&ready) || atomic_load(&finished) || python.PyGILState_Check()) return;
    holds_fork = true;
    fork_lock = python.PyGILState_Ensure();
    python.PyOS_BeforeFork();
}

static void after_fork_parent(void) {
    if (!holds_fork) return;
    holds_fork = false;
    python.PyOS_AfterFork_Parent();
    python.PyGILState_Release(fork_lock);
}

static void after_fork_child(void) {
    pthread_mutex_init(&starting, NULL);
    if (!holds_fork) return;
    holds_fork = false;
    python.PyOS_AfterFork_Child();
    python.PyGILState_Release(fork_lock);
}

/* ---- Start and end -------------------------------------------------------------------------------------------- */

static bool find_functions(void) {
    void* library = RTLD_DEFAULT;
    if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == NULL) {
        const char* path = setting("NNHAL_PYTHON_LIBRARY", NNHAL_PYTHON_LIBRARY);
        if (*path == '\0') {
            report("there is no shared library of Python", "set NNHAL_PYTHON_LIBRARY to the path of libpython3.*.so");
            return false;
        }
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global: extension modules need its symbols */
        if (library == NULL) {
            report("Python cannot be loaded", dlerror());
            return false;
        }
    }
#define FIND(result, name, parameters)                                    \
    *(void**)&python.name = dlsym(library, #name);                        \
    if (python.name == NULL) {                                            \
        report("this version of Python is too old; it lacks", #name);     \
        return false;                                                     \
    }
    PYTHON_FUNCTIONS(FIND)
#undef FIND
    *(void**)&python.Py_SetProgramName = dlsym(library, "Py_SetProgramName");
    python.none = dlsym(library, "_Py_NoneStruct");
    return python.none != NULL;
}

static void start_interpreter(void) {
    const char* program = setting("NNHAL_PYTHON", NNHAL_PYTHON_PROGRAM);
    if (*program != '\0' && python.Py_SetProgramName != NULL) {
        /* the interpreter finds its environment beside its program, and so do the services that it starts */
        wchar_t* decoded = python.Py_DecodeLocale(program, NULL);
        if (decoded != NULL) python.Py_SetProgramName(decoded);
    }
    python.Py_InitializeEx(0); /* 0: the handlers of signals belong to the host */
    owns_interpreter = true;
    python.PyEval_SaveThread();
}

static Object* on_exit_of_python(Object* self, Object* arguments) {
    (void)self, (void)arguments;
    atomic_store(&finished, 1);
    python.Py_IncRef(python.none);
    return python.none;
}

/* The interpreter itself is not finalized: other threads of the host may still be in it. */
static void on_exit_of_process(void) {
    if (atomic_exchange(&finished, 1) || shut_down == NULL) return;
    int lock = python.PyGILState_Ensure();
    Object* result = python.PyObject_CallFunction(shut_down, NULL);
    if (result == NULL) python.PyErr_Print();
    python.PyGILState_Release(lock);
}

/* Takes the functions of the library's package. Several threads may do so at once, with the same result. */
static bool take_functions(void) {
    static MethodDefinition exit_definition = {"finish", on_exit_of_python, METH_NOARGS, NULL};
    Object* module = python.PyImport_ImportModule(THIS_LIBRARY.module);
    Object* start = module != NULL ? python.PyObject_GetAttrString(module, "start") : NULL;
    Object* finish = start != NULL ? python.PyCFunction_NewEx(&exit_definition, NULL, NULL) : NULL;
    Object* answer =
        finish != NULL ? python.PyObject_CallFunction(start, "Oi", finish, (int)owns_interpreter) : NULL;
    if (answer == NULL) return false;
    long count = python.PyTuple_Size(answer) - 1;
    if (count != THIS_LIBRARY.function_count) {
        report("this library and the installed nnhal differ in version", "build it again");
        return false;
    }
    if (atomic_load(&ready)) return true;
    Object** table = calloc((size_t)count, sizeof(Object*));
    if (table == NULL) return false;
    for (long i = 0; i < count; i++) table[i] = python.PyTuple_GetItem(answer, i);
    shut_down = python.PyTuple_GetItem(answer, count);
    functions = table; /* `answer` is kept for ever, and so are they */
    atomic_store(&ready, 1);
    return true;
}

static bool import_functions(void) {
    int lock = python.PyGILState_Ensure();
    bool taken = take_functions();
    const char* version = NNHAL_PYTHON_VERSION; /* packages with compiled modules suit one version of Python only */
    if (!taken && python.PyErr_Occurred() && strncmp(python.Py_GetVersion(), version, strlen(version)) == 0) {
        /* the environment of the host lacks nnhal: use the one that the library was built in, after the host's own */
        python.PyErr_Clear();
        Object* module = python.PyImport_ImportModule("sys");
        Object* path = module != NULL ? python.PyObject_GetAttrString(module, "path") : NULL;
        Object* extend = path != NULL ? python.PyObject_GetAttrString(path, "append") : NULL;
        char paths[] = NNHAL_PYTHON_PATHS;
        char* rest = NULL;
        for (char* one = strtok_r(paths, ":", &rest); one != NULL && extend != NULL; one = strtok_r(NULL, ":", &rest))
            python.Py_DecRef(python.PyObject_CallFunction(extend, "s", one));
        taken = take_functions();
    }
    if (!taken && python.PyErr_Occurred()) {
        report("nnhal cannot be imported", "install nnhal[ndk] in the environment of this program");
        python.PyErr_Print();
    }
    python.PyGILState_Release(lock);
    return taken;
}

static bool start(void) {
    static bool is_found = false;
    if (atomic_load(&ready)) return true;
    pthread_mutex_lock(&starting); /* never held while Python's lock is waited for */
    if (!is_found && (is_found = find_functions())) {
        pthread_key_create(&thread_key, detach_thread);
        pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    }
    bool is_running = is_found && python.Py_IsInitialized();
    if (is_found && !is_running) {
        start_interpreter();
        is_running = true;
    }
    pthread_mutex_unlock(&starting);
    if (!is_running || !import_functions()) return false;
    static _Atomic int registered = 0;
    /* after the modules with C++ of the client are loaded, so that it runs before their destructors */
    if (owns_interpreter && !atomic_exchange(&registered, 1)) atexit(on_exit_of_process);
    return true;
}

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

bool call_begin(Call* call) {
    call->count = 0;
    call->result = NULL;
    call->code = ANEURALNETWORKS_DEAD_OBJECT;
    if (atomic_load_explicit(&finished, memory_order_relaxed)) return false;
    if (!atomic_load_explicit(&ready, memory_order_acquire) && !start()) {
        call->code = ANEURALNETWORKS_OP_FAILED;
        return false;
    }
    if (!is_attached) attach_thread();
    call->lock = python.PyGILState_Ensure();
    return true;
}

void call_invoke(Call* call, int function, bool returns_tuple) {
    for (int i = 0; i < call->count; i++) {
        if (call->arguments[i] == NULL) {
            python.PyErr_Clear();
            call->code = ANEURALNETWORKS_OUT_OF_MEMORY;
            return;
        }
    }
    call->result = python.PyObject_Vectorcall(functions[function], call->arguments, (size_t)call->count, NULL);
    Object* code = returns_tuple && call->result != NULL ? python.PyTuple_GetItem(call->result, 0) : call->result;
    call->code = code != NULL ? (int)python.PyLong_AsLongLong(code) : ANEURALNETWORKS_OP_FAILED;
    if (code == NULL) python.PyErr_Print();
}

int call_end(Call* call) {
    for (int i = 0; i < call->count; i++)
        if (call->arguments[i] != NULL) python.Py_DecRef(call->arguments[i]);
    if (call->result != NULL) python.Py_DecRef(call->result);
    python.PyGILState_Release(call->lock);
    return call->code;
}

static void push(Call* call, Object* argument) { call->arguments[call->count++] = argument; }

static void push_none(Call* call) {
    python.Py_IncRef(python.none);
    push(call, python.none);
}

void push_handle(Call* call, const void* handle) {
    push(call, python.PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)handle));
}

void push_signed(Call* call, int64_t value) { push(call, python.PyLong_FromLongLong(value)); }

void push_unsigned(Call* call, uint64_t value) { push(call, python.PyLong_FromUnsignedLongLong(value)); }

void push_float(Call* call, double value) { push(call, python.PyFloat_FromDouble(value)); }

void push_copy(Call* call, const void* data, size_t size) {
    if (data == NULL) {
        push_none(call);
    } else {
        push(call, python.PyBytes_FromStringAndSize(data, (long)size));
    }
}

void push_buffer(Call* call, const void* data, size_t size, bool writable) {
    if (data == NULL) {
        push_none(call);
    } else {
        long length = size > LONG_MAX ? LONG_MAX : (long)size; /* no value is that large, so that it is refused */
        push(call, python.PyMemoryView_FromMemory((char*)(uintptr_t)data, length, writable ? WRITE_VIEW : READ_VIEW));
    }
}

void push_string(Call* call, const char* text) { push_copy(call, text, text != NULL ? strlen(text) : 0); }

void push_operand_type(Call* call, const ANeuralNetworksOperandType* type) {
    if (type == NULL) {
        for (int i = 0; i < 4; i++) push_none(call);
        return;
    }
    push_signed(call, type->type);
    push(call, python.PyBytes_FromStringAndSize((const char*)type->dimensions,
                                                (long)(type->dimensionCount * sizeof(uint32_t))));
    push_float(call, (double)type->scale);
    push_signed(call, type->zeroPoint);
}

void push_quant_params(Call* call, const ANeuralNetworksSymmPerChannelQuantParams* params) {
    push_unsigned(call, params->channelDim);
    push_unsigned(call, params->scaleCount);
    push_buffer(call, params->scales, params->scaleCount * sizeof(float), false);
}

/* ---- Results -------------------------------------------------------------------------------------------------- */

static Object* item(Call* call, int position) {
    if (call->result == NULL) return NULL;
    Object* found = python.PyTuple_GetItem(call->result, position); /* fails if the function failed */
    if (found == NULL) python.PyErr_Clear();
    return found;
}

void* take_handle(Call* call, int position) {
    Object* found = item(call, position);
    return found != NULL ? (void*)(uintptr_t)python.PyLong_AsUnsignedLongLong(found) : NULL;
}

bool take_signed(Call* call, int position, int64_t* value) {
    Object* found = item(call, position);
    if (found != NULL) *value = python.PyLong_AsLongLong(found);
    return found != NULL;
}

bool take_unsigned(Call* call, int position, uint64_t* value) {
    Object* found = item(call, position);
    if (found != NULL) *value = python.PyLong_AsUnsignedLongLong(found);
    return found != NULL;
}

static bool bytes_of(Call* call, int position, char** data, long* size) {
    Object* found = item(call, position);
    if (found == NULL) return false;
    if (python.PyBytes_AsStringAndSize(found, data, size) == 0) return true;
    python.PyErr_Clear();
    return false;
}

bool take_data(Call* call, int position, const void** data, size_t* size) {
    char* bytes = NULL;
    long length = 0;
    if (!bytes_of(call, position, &bytes, &length)) return false;
    *data = bytes;
    *size = (size_t)length;
    return true;
}

bool take_string(Call* call, int position, const char** text) {
    char* data = NULL;
    long size = 0;
    if (!bytes_of(call, position, &data, &size)) return false;
    *text = data;
    return true;
}

void take_bytes(Call* call, int position, void* target) {
    char* data = NULL;
    long size = 0;
    if (bytes_of(call, position, &data, &size)) memcpy(target, data, (size_t)size);
}

/* ---- Structures ----------------------------------------------------------------------------------------------- */

int check_operand_type(const ANeuralNetworksOperandType* type) {
    if (type == NULL) return ANEURALNETWORKS_NO_ERROR;
    /* the array is NULL if and only if it has no elements */
    if ((type->dimensionCount == 0) != (type->dimensions == NULL)) return ANEURALNETWORKS_BAD_DATA;
    return type->dimensionCount > MAX_RANK ? ANEURALNETWORKS_BAD_DATA : ANEURALNETWORKS_NO_ERROR;
}
