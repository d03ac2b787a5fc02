// A small CNN and a recurrent loop, computed in all ways from several threads: for runs with sanitizers.

#include <thread>

#include "program.hpp"

namespace {

constexpr int kThreads = 4, kRounds = 12;
const Floats kImage(1 * 8 * 8 * 2, 0.5F);
constexpr size_t kClasses = 3;

/// CONV_2D, RELU6 and AVERAGE_POOL_2D, added in reverse, then FULLY_CONNECTED and SOFTMAX.
struct Cnn {
    Floats filters = Floats(4 * 3 * 3 * 2, 0.1F), bias = Floats(4, 0.25F);
    Floats weights = Floats(kClasses * 4 * 4 * 4, 0.01F), offsets = Floats(kClasses, 0.0F);
    Model model;

    Cnn() {
        const uint32_t image = model.tensor({1, 8, 8, 2}), convolved = model.tensor({1, 8, 8, 4});
        const uint32_t clipped = model.tensor({1, 8, 8, 4}), pooled = model.tensor({1, 4, 4, 4});
        const uint32_t rows = model.tensor({1, kClasses}), result = model.tensor({1, kClasses});
        const uint32_t one = model.number(1), two = model.number(2), none = model.number(ANEURALNETWORKS_FUSED_NONE);
        const uint32_t same = model.number(ANEURALNETWORKS_PADDING_SAME);
        const uint32_t filter = model.constant({4, 3, 3, 2}, filters), shift = model.constant({4}, bias);
        const uint32_t matrix = model.constant({kClasses, 64}, weights), offset = model.constant({kClasses}, offsets);
        const uint32_t beta = model.tensor({}, ANEURALNETWORKS_FLOAT32);
        const float value = 1.0F;
        OK(ANeuralNetworksModel_setOperandValue(model.get(), static_cast<int32_t>(beta), &value, sizeof value));
        model.operation(ANEURALNETWORKS_SOFTMAX, {rows, beta}, {result});
        model.operation(ANEURALNETWORKS_FULLY_CONNECTED, {pooled, matrix, offset, none}, {rows});
        model.operation(ANEURALNETWORKS_AVERAGE_POOL_2D, {clipped, same, two, two, two, two, none}, {pooled});
        model.operation(ANEURALNETWORKS_RELU6, {convolved}, {clipped});
        model.operation(ANEURALNETWORKS_CONV_2D, {image, filter, shift, same, one, one, none}, {convolved});
        model.finish({image}, {result});
    }
};

/// WHILE with a gated state, as in an LSTM: state = tanh(state + input) * sigmoid(input), while steps < limit.
struct Loop {
    Model condition, body, model;

    Loop() {
        const auto signature = [](Model& graph) {
            return Indexes{graph.tensor({1}), graph.tensor({1, 4}), graph.tensor({1, 4}), graph.tensor({1})};
        };
        const Indexes read = signature(condition);
        const uint32_t goes_on = condition.tensor({1}, ANEURALNETWORKS_TENSOR_BOOL8);
        condition.operation(ANEURALNETWORKS_LESS, {read[0], read[3]}, {goes_on});
        condition.finish(read, {goes_on});

        const Indexes given = signature(body);
        const uint32_t one = body.constant({1}, ones_), none = body.number(ANEURALNETWORKS_FUSED_NONE);
        const uint32_t next = body.tensor({1}), sum = body.tensor({1, 4}), bent = body.tensor({1, 4});
        const uint32_t gate = body.tensor({1, 4}), state = body.tensor({1, 4});
        body.operation(ANEURALNETWORKS_ADD, {given[0], one, none}, {next});
        body.operation(ANEURALNETWORKS_ADD, {given[1], given[2], none}, {sum});
        body.operation(ANEURALNETWORKS_TANH, {sum}, {bent});
        body.operation(ANEURALNETWORKS_LOGISTIC, {given[2]}, {gate});
        body.operation(ANEURALNETWORKS_MUL, {bent, gate, none}, {state});
        body.finish(given, {next, state});

        const Indexes outer = signature(model);
        const uint32_t last = model.tensor({1}), result = model.tensor({1, 4});
        const uint32_t test = model.graph(condition), step = model.graph(body);
        model.operation(ANEURALNETWORKS_WHILE, {test, step, outer[0], outer[1], outer[2], outer[3]}, {last, result});
        model.finish(outer, {last, result});
    }

private:
    Floats ones_{1.0F};
};

Execution new_execution(const Compilation& compilation) {
    return create<Execution>(ANeuralNetworksExecution_create, compilation.get());
}

Floats classify(const Compilation& compilation) {
    Floats result(kClasses);
    const Execution execution = new_execution(compilation);
    bind_input(execution, 0, kImage);
    bind_output(execution, 0, result);
    OK(ANeuralNetworksExecution_compute(execution.get()));
    return result;
}

void compute_in_all_ways(const Compilation& compilation, const Floats& expected) {
    const Burst burst = create<Burst>(ANeuralNetworksBurst_create, compilation.get());
    for (int round = 0; round < kRounds; round++) {
        REQUIRE(classify(compilation) == expected);
        Floats first(kClasses), second(kClasses), third(kClasses);
        const Execution bursting = new_execution(compilation), started = new_execution(compilation);
        const Execution dependent = new_execution(compilation);
        OK(ANeuralNetworksExecution_setReusable(bursting.get(), true));
        OK(ANeuralNetworksExecution_setMeasureTiming(dependent.get(), true));
        for (const Execution* each : {&bursting, &started, &dependent}) bind_input(*each, 0, kImage);
        bind_output(bursting, 0, first);
        bind_output(started, 0, second);
        bind_output(dependent, 0, third);
        const Event event = create<Event>(ANeuralNetworksExecution_startCompute, started.get());
        const ANeuralNetworksEvent* dependencies[] = {event.get()};
        const Event last = create<Event>(ANeuralNetworksExecution_startComputeWithDependencies, dependent.get(),
                                         dependencies, 1U, uint64_t{0});
        for (int i = 0; i < 2; i++) OK(ANeuralNetworksExecution_burstCompute(bursting.get(), burst.get()));
        int descriptor = -1;
        OK(ANeuralNetworksEvent_getSyncFenceFd(last.get(), &descriptor));
        const Event imported = create<Event>(ANeuralNetworksEvent_createFromSyncFenceFd, descriptor);
        close(descriptor);
        OK(ANeuralNetworksEvent_wait(imported.get()));
        OK(ANeuralNetworksEvent_wait(last.get()));
        OK(ANeuralNetworksEvent_wait(event.get()));
        REQUIRE(first == expected && second == expected && third == expected);
        uint64_t duration = 0;
        OK(ANeuralNetworksExecution_getDuration(dependent.get(), ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER, &duration));
    }
}

/// The state after three steps from zero, with the inputs 0, 0.1, 0.2 and 0.3.
Floats run_loop(const Compilation& compilation) {
    const Floats step{0.0F}, zero(4), input{0.0F, 0.1F, 0.2F, 0.3F}, limit{3.0F};
    Floats last(1), state(4);
    const Execution execution = new_execution(compilation);
    int32_t index = 0;
    for (const Floats* each : {&step, &zero, &input, &limit}) bind_input(execution, index++, *each);
    bind_output(execution, 0, last);
    bind_output(execution, 1, state);
    OK(ANeuralNetworksExecution_compute(execution.get()));
    REQUIRE(last[0] == 3.0F && state[0] == 0.0F && state[3] > state[1]);
    return state;
}

/// Floats that this process and the library map.
class SharedFloats {
public:
    explicit SharedFloats(size_t count) : size_(count * sizeof(float)) {
        const int file = memfd_create("floats", 0);
        REQUIRE(file >= 0 && ftruncate(file, static_cast<off_t>(size_)) == 0);
        data_ = static_cast<float*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        memory_ = create<Memory>(ANeuralNetworksMemory_createFromFd, size_, PROT_READ | PROT_WRITE, file, size_t{0});
        close(file);
    }
    ~SharedFloats() { munmap(data_, size_); }
    SharedFloats(const SharedFloats&) = delete;
    SharedFloats& operator=(const SharedFloats&) = delete;

    ANeuralNetworksMemory* memory() const { return memory_.get(); }
    float& operator[](size_t index) { return data_[index]; }

private:
    size_t size_;
    float* data_ = nullptr;
    Memory memory_;
};

void loop_in_memories(const Compilation& compilation, const Floats& expected) {
    SharedFloats floats(32), contents(4);
    const Desc desc = create<Desc>(ANeuralNetworksMemoryDesc_create);
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc.get(), compilation.get(), 1, 1.0F));
    OK(ANeuralNetworksMemoryDesc_addOutputRole(desc.get(), compilation.get(), 1, 1.0F));
    OK(ANeuralNetworksMemoryDesc_finish(desc.get()));
    const ANeuralNetworksMemoryDesc* described = desc.get();
    const Memory before = create<Memory>(ANeuralNetworksMemory_createFromDesc, described);
    const Memory after = create<Memory>(ANeuralNetworksMemory_createFromDesc, described);
    for (int round = 0; round < kRounds; round++) {
        for (size_t i = 0; i < 4; i++) contents[i] = 0.0F;
        OK(ANeuralNetworksMemory_copy(contents.memory(), before.get()));
        floats[0] = 0.0F;
        for (size_t i = 0; i < 4; i++) floats[1 + i] = (Floats{0.0F, 0.1F, 0.2F, 0.3F})[i];
        floats[5] = 3.0F;
        const Execution execution = new_execution(compilation);
        const auto input = [&](int32_t index, size_t offset, size_t count) {
            OK(ANeuralNetworksExecution_setInputFromMemory(execution.get(), index, nullptr, floats.memory(),
                                                           offset * sizeof(float), count * sizeof(float)));
        };
        input(0, 0, 1);
        input(2, 1, 4);
        input(3, 5, 1);
        OK(ANeuralNetworksExecution_setInputFromMemory(execution.get(), 1, nullptr, before.get(), 0, 0));
        OK(ANeuralNetworksExecution_setOutputFromMemory(execution.get(), 0, nullptr, floats.memory(), 64, sizeof(float)));
        OK(ANeuralNetworksExecution_setOutputFromMemory(execution.get(), 1, nullptr, after.get(), 0, 0));
        OK(ANeuralNetworksExecution_setLoopTimeout(execution.get(), ANeuralNetworks_getMaximumLoopTimeout()));
        OK(ANeuralNetworksExecution_compute(execution.get()));
        REQUIRE(floats[16] == 3.0F);
        OK(ANeuralNetworksMemory_copy(after.get(), contents.memory()));
        for (size_t i = 0; i < 4; i++) REQUIRE(contents[i] == expected[i]);
    }
}

}  // namespace

int main() {
    const Cnn cnn;
    const Loop loop;
    const Compilation classifier = cnn.model.compile(), looper = loop.model.compile();
    const Floats classes = classify(classifier);
    const Floats state = run_loop(looper);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
        threads.emplace_back([&] { compute_in_all_ways(classifier, classes); });
        threads.emplace_back([&] { loop_in_memories(looper, state); });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("done\n");
    return 0;
}
