/* Self-test of `nnhal ndk check`: a C program that lists the devices, and adds two tensors in every way of executing. */

#define _POSIX_C_SOURCE 200809L

#include <android/NeuralNetworks.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 6, BYTES = COUNT * sizeof(float), ROUNDS = 100 };

static const float A[COUNT] = {1, 2, 3, 4, 5, 6};
static const float B[COUNT] = {10, 20, 30, 40, 50, 60};

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void require(int code, const char* what) {
    if (code == ANEURALNETWORKS_NO_ERROR) return;
    printf("%s failed with result code %d\n", what, code);
    exit(1);
}

#define REQUIRE(call) require(call, #call)

static void require_sum(const float* sum, const char* way) {
    for (int i = 0; i < COUNT; i++) {
        if (sum[i] == A[i] + B[i]) continue;
        printf("%s: element %d is %g, not %g\n", way, i, (double)sum[i], (double)(A[i] + B[i]));
        exit(1);
    }
}

static void list_devices(void) {
    uint32_t count;
    double start = now_us();
    REQUIRE(ANeuralNetworks_getDeviceCount(&count));
    printf("first call: %.0f ms\n", (now_us() - start) / 1e3);
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice* device;
        const char* name;
        REQUIRE(ANeuralNetworks_getDevice(i, &device));
        REQUIRE(ANeuralNetworksDevice_getName(device, &name));
        const char* version = "";
        int64_t level = 0;
        int code = ANeuralNetworksDevice_getVersion(device, &version);
        if (code == ANEURALNETWORKS_NO_ERROR) code = ANeuralNetworksDevice_getFeatureLevel(device, &level);
        if (code == ANEURALNETWORKS_NO_ERROR) {
            printf("device %u: %s, version %s, feature level %lld\n", i, name, version, (long long)level);
        } else {
            printf("device %u: %s, which cannot be reached (result code %d)\n", i, name, code);
        }
    }
}

static ANeuralNetworksModel* build_model(void) {
    ANeuralNetworksModel* model;
    const uint32_t dimensions[2] = {2, 3};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 2, dimensions, 0, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0, 0};
    const ANeuralNetworksOperandType* operands[4] = {&tensor, &tensor, &scalar, &tensor};
    const uint32_t inputs[3] = {0, 1, 2}, outputs[1] = {3};
    const int32_t activation = ANEURALNETWORKS_FUSED_NONE;
    REQUIRE(ANeuralNetworksModel_create(&model));
    for (int i = 0; i < 4; i++) REQUIRE(ANeuralNetworksModel_addOperand(model, operands[i]));
    REQUIRE(ANeuralNetworksModel_setOperandValue(model, 2, &activation, sizeof activation));
    REQUIRE(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, outputs));
    REQUIRE(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, inputs, 1, outputs));
    REQUIRE(ANeuralNetworksModel_finish(model));
    return model;
}

static ANeuralNetworksExecution* new_execution(ANeuralNetworksCompilation* compilation, float* sum) {
    ANeuralNetworksExecution* execution;
    REQUIRE(ANeuralNetworksExecution_create(compilation, &execution));
    REQUIRE(ANeuralNetworksExecution_setInput(execution, 0, NULL, A, BYTES));
    REQUIRE(ANeuralNetworksExecution_setInput(execution, 1, NULL, B, BYTES));
    REQUIRE(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, BYTES));
    return execution;
}

static void compute(ANeuralNetworksCompilation* compilation) {
    float sum[COUNT] = {0};
    double start = 0;
    for (int i = 0; i <= ROUNDS; i++) {
        if (i == 1) start = now_us();
        ANeuralNetworksExecution* execution = new_execution(compilation, sum);
        REQUIRE(ANeuralNetworksExecution_compute(execution));
        ANeuralNetworksExecution_free(execution);
    }
    require_sum(sum, "compute");
    printf("compute: %.0f us\n", (now_us() - start) / ROUNDS);
}

static void compute_with_events(ANeuralNetworksCompilation* compilation) {
    float first_sum[COUNT] = {0}, second_sum[COUNT] = {0};
    ANeuralNetworksEvent *first_end, *second_end;
    ANeuralNetworksExecution* first = new_execution(compilation, first_sum);
    ANeuralNetworksExecution* second = new_execution(compilation, second_sum);
    REQUIRE(ANeuralNetworksExecution_startCompute(first, &first_end));
    const ANeuralNetworksEvent* dependencies[1] = {first_end};
    REQUIRE(ANeuralNetworksExecution_startComputeWithDependencies(second, dependencies, 1, 0, &second_end));
    REQUIRE(ANeuralNetworksEvent_wait(second_end));
    ANeuralNetworksEvent_free(second_end);
    ANeuralNetworksEvent_free(first_end);
    require_sum(first_sum, "startCompute");
    require_sum(second_sum, "startComputeWithDependencies");
    ANeuralNetworksExecution_free(first);
    ANeuralNetworksExecution_free(second);
    printf("events: ok\n");
}

static void compute_in_burst(ANeuralNetworksCompilation* compilation) {
    float sum[COUNT] = {0};
    ANeuralNetworksBurst* burst;
    REQUIRE(ANeuralNetworksBurst_create(compilation, &burst));
    double start = 0;
    for (int i = 0; i <= ROUNDS; i++) {
        if (i == 1) start = now_us();
        ANeuralNetworksExecution* execution = new_execution(compilation, sum);
        REQUIRE(ANeuralNetworksExecution_burstCompute(execution, burst));
        ANeuralNetworksExecution_free(execution);
    }
    require_sum(sum, "burstCompute");
    printf("burst: %.0f us\n", (now_us() - start) / ROUNDS);
    ANeuralNetworksBurst_free(burst);
}

static void compute_in_memory(ANeuralNetworksCompilation* compilation) {
    char name[] = "/tmp/nnhal-ndk-check-XXXXXX";
    int descriptor = mkstemp(name);
    require(descriptor < 0 || unlink(name) != 0 || ftruncate(descriptor, 3 * BYTES) != 0, "creating a file");
    float* values = mmap(NULL, 3 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    require(values == MAP_FAILED, "mmap");
    for (int i = 0; i < COUNT; i++) values[i] = A[i], values[COUNT + i] = B[i];
    ANeuralNetworksMemory* memory;
    ANeuralNetworksExecution* execution;
    REQUIRE(ANeuralNetworksMemory_createFromFd(3 * BYTES, PROT_READ | PROT_WRITE, descriptor, 0, &memory));
    close(descriptor);
    REQUIRE(ANeuralNetworksExecution_create(compilation, &execution));
    REQUIRE(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, BYTES));
    REQUIRE(ANeuralNetworksExecution_setInputFromMemory(execution, 1, NULL, memory, BYTES, BYTES));
    REQUIRE(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 2 * BYTES, BYTES));
    REQUIRE(ANeuralNetworksExecution_compute(execution));
    require_sum(values + 2 * COUNT, "memory");
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemory_free(memory);
    munmap(values, 3 * BYTES);
    printf("memory: ok\n");
}

int main(void) {
    list_devices();
    ANeuralNetworksModel* model = build_model();
    ANeuralNetworksCompilation* compilation;
    double start = now_us();
    REQUIRE(ANeuralNetworksCompilation_create(model, &compilation));
    REQUIRE(ANeuralNetworksCompilation_finish(compilation));
    printf("compilation: %.0f ms\n", (now_us() - start) / 1e3);
    compute(compilation);
    compute_with_events(compilation);
    compute_in_burst(compilation);
    compute_in_memory(compilation);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    printf("libneuralnetworks.so works\n");
    return 0;
}
