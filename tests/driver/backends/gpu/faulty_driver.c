/* A driver of Vulkan that forwards to SwiftShader, with the fault that the first letter of a file names:
 *
 *   a  the creation of a device aborts the process
 *   h  work never ends
 *   l  the device is lost; the next ones are not, because the file is removed
 *   m  there is no memory for more than 16 MiB
 *   n  nothing is computed
 *
 * FAULT_FILE is that file, GPU_NAME the name of the GPU, and DRIVER the library of SwiftShader. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);
enum { OUT_OF_DEVICE_MEMORY = -2, INITIALIZATION_FAILED = -3, DEVICE_LOST = -4 };
enum { MEMORY_LIMIT = 16 << 20 };
enum { DEVICE_OFFSET = 12, NAME_OFFSET = 20, NAME_SIZE = 256, DEVICE_ID = 0xfa17 };

static Lookup instance_lookup, physical_lookup, device_lookup;
static int (*create_device)(void *, const void *, const void *, void *);
static int (*submit)(void *, uint32_t, const void *, uint64_t);
static int (*allocate)(void *, const void *, const void *, void *);
static void (*dispatch)(void *, uint32_t, uint32_t, uint32_t);
static void (*get_properties)(void *, char *), (*get_properties_2)(void *, char *);

static int fault(void) {
    FILE *file = fopen(FAULT_FILE, "r");
    if (!file) return 0;
    int letter = fgetc(file);
    fclose(file);
    return letter;
}

static int faulty_create_device(void *gpu, const void *info, const void *allocator, void *device) {
    if (fault() == 'a') abort();
    return create_device(gpu, info, allocator, device);
}

static int faulty_submit(void *queue, uint32_t count, const void *work, uint64_t fence) {
    int letter = fault();
    if (letter == 'l' && !unlink(FAULT_FILE)) return DEVICE_LOST;
    if (letter == 'h') for (;;) pause();
    return submit(queue, count, work, fence);
}

static int faulty_allocate(void *device, const void *info, const void *allocator, void *memory) {
    uint64_t size = ((const uint64_t *)info)[2]; /* behind its type and the next structure */
    if (size > MEMORY_LIMIT && fault() == 'm') return OUT_OF_DEVICE_MEMORY;
    return allocate(device, info, allocator, memory);
}

static void faulty_dispatch(void *commands, uint32_t x, uint32_t y, uint32_t z) {
    if (fault() != 'n') dispatch(commands, x, y, z);
}

static void rename_gpu(char *properties) {
    uint32_t device = DEVICE_ID;
    memcpy(properties + DEVICE_OFFSET, &device, sizeof device);
    snprintf(properties + NAME_OFFSET, NAME_SIZE, "%s", GPU_NAME);
}

static void named_properties(void *gpu, char *properties) {
    get_properties(gpu, properties);
    rename_gpu(properties);
}

static void named_properties_2(void *gpu, char *properties) {
    get_properties_2(gpu, properties);
    rename_gpu(properties + 2 * sizeof(void *)); /* behind its type and the next structure */
}

static Function find_in_device(void *device, const char *name);

static const struct { const char *name; void *real; Function faulty; } HOOKS[] = {
    {"vkCreateDevice", &create_device, (Function)faulty_create_device},
    {"vkQueueSubmit", &submit, (Function)faulty_submit},
    {"vkAllocateMemory", &allocate, (Function)faulty_allocate},
    {"vkCmdDispatch", &dispatch, (Function)faulty_dispatch},
    {"vkGetPhysicalDeviceProperties", &get_properties, (Function)named_properties},
    {"vkGetPhysicalDeviceProperties2", &get_properties_2, (Function)named_properties_2},
    {"vkGetPhysicalDeviceProperties2KHR", &get_properties_2, (Function)named_properties_2},
    {"vkGetDeviceProcAddr", &device_lookup, (Function)find_in_device},
};

static Function hooked(const char *name, Function real) {
    for (size_t i = 0; real && i < sizeof HOOKS / sizeof *HOOKS; i++)
        if (!strcmp(name, HOOKS[i].name)) {
            memcpy(HOOKS[i].real, &real, sizeof real);
            return HOOKS[i].faulty;
        }
    return real;
}

static Function find_in_device(void *device, const char *name) { return hooked(name, device_lookup(device, name)); }

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    return hooked(name, instance_lookup(instance, name));
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    return physical_lookup ? hooked(name, physical_lookup(instance, name)) : NULL;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!library) return INITIALIZATION_FAILED;
    instance_lookup = (Lookup)dlsym(library, "vk_icdGetInstanceProcAddr");
    physical_lookup = (Lookup)dlsym(library, "vk_icdGetPhysicalDeviceProcAddr");
    int (*negotiate)(uint32_t *) = (int (*)(uint32_t *))dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate ? negotiate(version) : 0;
}
