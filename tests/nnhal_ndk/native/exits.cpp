// A program that ends while the library computes: `exits return|thread|calls`. The argument tells how it ends.

#include <atomic>
#include <cstring>
#include <thread>

#include "program.hpp"

constexpr uint32_t SIZE = 256;
constexpr int LAYERS = 60;

static ANeuralNetworksModel* model_of_destructor = nullptr;
static ANeuralNetworksEvent* event_of_destructor = nullptr;

/// Uses the library after `main`, when it does not compute any more.
struct Late {
    ~Late() {
        ANeuralNetworksEvent_free(event_of_destructor);
        ANeuralNetworksModel_free(model_of_destructor);
        EXPECT(DEAD_OBJECT, ANeuralNetworksModel_finish(model_of_destructor));
        std::puts("late calls");
    }
};
static Late late;

static void start_long_computation() {
    auto& model = *new Model;  // nothing is freed: the computation uses all of it until the process has ended
    auto& weights = *new Floats(SIZE * SIZE, 0.001F);
    auto& bias = *new Floats(SIZE);
    auto& values = *new Floats(SIZE * SIZE, 1.0F);
    auto& result = *new Floats(SIZE * SIZE);
    const uint32_t input = model.tensor({SIZE, SIZE});
    const uint32_t filter = model.constant({SIZE, SIZE}, weights);
    const uint32_t biases = model.constant({SIZE}, bias);
    const uint32_t activation = model.number(ANEURALNETWORKS_FUSED_NONE);
    uint32_t last = input;
    for (int i = 0; i < LAYERS; i++) {
        const uint32_t next = model.tensor({SIZE, SIZE});
        model.operation(ANEURALNETWORKS_FULLY_CONNECTED, {last, filter, biases, activation}, {next});
        last = next;
    }
    model.finish({input}, {last});
    auto& compilation = *new Compilation(model.compile());
    auto& execution = *new Execution(create<Execution>(ANeuralNetworksExecution_create, compilation.get()));
    bind_input(execution, 0, values);
    bind_output(execution, 0, result);
    OK(ANeuralNetworksExecution_startCompute(execution.get(), &event_of_destructor));
    model_of_destructor = model.get();
}

static void call_for_ever(std::atomic<bool>& has_called) {
    for (;;) {
        ANeuralNetworksModel* model = nullptr;
        if (ANeuralNetworksModel_create(&model) == ANEURALNETWORKS_NO_ERROR) ANeuralNetworksModel_free(model);
        has_called = true;
    }
}

int main(int, char** arguments) {
    start_long_computation();
    std::puts("computing");
    if (std::strcmp(arguments[1], "thread") == 0) {
        std::thread([] { std::exit(0); }).join();
    } else if (std::strcmp(arguments[1], "calls") == 0) {
        auto& has_called = *new std::atomic<bool>(false);
        std::thread([&has_called] { call_for_ever(has_called); }).detach();
        while (!has_called) std::this_thread::yield();
    }
    return 0;
}
