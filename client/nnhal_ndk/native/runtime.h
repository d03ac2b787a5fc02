/* Calls from the C functions of a library to its Python package: nnhal_ndk, or nnhal_delegate.
 *
 * An entry point checks its pointers, begins a call, pushes its arguments, invokes the Python function, takes its
 * results, and ends the call. Python gets numbers, copies of arrays, and memoryviews of buffers: never a raw pointer.
 */

#ifndef NNHAL_NDK_RUNTIME_H
#define NNHAL_NDK_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "android/NeuralNetworks.h"

#define NNHAL_API __attribute__((visibility("default")))

enum { MAX_ARGUMENTS = 16, MAX_RANK = 1024 };

/** The library that this runtime is part of. */
typedef struct {
    const char* name;   /* for messages */
    const char* module; /* its function `start` returns the Python functions */
    int function_count;
} Library;

extern const Library THIS_LIBRARY;

/** A call in progress. `code` is the result of the C function. */
typedef struct {
    void* arguments[MAX_ARGUMENTS];
    int count;
    int lock;
    int code;
    void* result;
} Call;

/** Starts or joins the interpreter if necessary, and takes its lock. Returns false, with `code` set, on failure. */
bool call_begin(Call* call);
/** Calls a Python function by its number in functions.h, and sets `code`. It returns the code, or a tuple with it. */
void call_invoke(Call* call, int function, bool returns_tuple);
/** Releases everything, and returns `code`. */
int call_end(Call* call);

void push_handle(Call* call, const void* handle);
void push_signed(Call* call, int64_t value);
void push_unsigned(Call* call, uint64_t value);
void push_float(Call* call, double value);
/** Pushes a copy of bytes, or None for NULL. */
void push_copy(Call* call, const void* data, size_t size);
/** Pushes a memoryview of a buffer of the application, or None for NULL. */
void push_buffer(Call* call, const void* data, size_t size, bool writable);
void push_string(Call* call, const char* text);
/** Pushes type, dimensions, scale and zero point; four times None for NULL. */
void push_operand_type(Call* call, const ANeuralNetworksOperandType* type);
/** Pushes the channel dimension and the scales. */
void push_quant_params(Call* call, const ANeuralNetworksSymmPerChannelQuantParams* params);

/** Results besides the code, at a position from 1; the target stays as it is if the function did not return them. */
void* take_handle(Call* call, int position);
bool take_signed(Call* call, int position, int64_t* value);
bool take_unsigned(Call* call, int position, uint64_t* value);
/** Text that lives until the process ends. */
bool take_string(Call* call, int position, const char** text);
/** Bytes that live until the call ends. */
bool take_data(Call* call, int position, const void** data, size_t* size);
/** Copies all bytes of a result. */
void take_bytes(Call* call, int position, void* target);

/** Returns the number of a result code if a type or its dimensions cannot be read, or 0. */
int check_operand_type(const ANeuralNetworksOperandType* type);

#endif
