// Support of C++ programs that use the library: checks, and objects that free themselves.

#pragma once

#include <NeuralNetworks.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <vector>

#define EXPECT(expected, call)                                                                              \
    do {                                                                                                    \
        const int result_ = (call);                                                                         \
        if (result_ != ANEURALNETWORKS_##expected) {                                                        \
            std::fprintf(stderr, "%s:%d: %s returned %d, not " #expected "\n", __FILE__, __LINE__, #call, result_); \
            std::exit(1);                                                                                   \
        }                                                                                                   \
    } while (false)
#define OK(call) EXPECT(NO_ERROR, call)
#define REQUIRE(condition)                                                                     \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (false)

template <typename T, void (*Free)(T*)>
struct Freeing {
    void operator()(T* object) const { Free(object); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freeing<T, Free>>;

using Compilation = Owned<ANeuralNetworksCompilation, ANeuralNetworksCompilation_free>;
using Execution = Owned<ANeuralNetworksExecution, ANeuralNetworksExecution_free>;
using Event = Owned<ANeuralNetworksEvent, ANeuralNetworksEvent_free>;
using Burst = Owned<ANeuralNetworksBurst, ANeuralNetworksBurst_free>;
using Memory = Owned<ANeuralNetworksMemory, ANeuralNetworksMemory_free>;
using Desc = Owned<ANeuralNetworksMemoryDesc, ANeuralNetworksMemoryDesc_free>;

template <typename T, typename Create, typename... Arguments>
T create(Create function, Arguments... arguments) {
    typename T::pointer object = nullptr;
    OK(function(arguments..., &object));
    REQUIRE(object != nullptr);
    return T(object);
}

using Indexes = std::vector<uint32_t>;

class Model {
public:
    Model() { OK(ANeuralNetworksModel_create(&model_)); }
    ~Model() { ANeuralNetworksModel_free(model_); }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    uint32_t tensor(Indexes dimensions, int32_t type = ANEURALNETWORKS_TENSOR_FLOAT32) {
        const ANeuralNetworksOperandType given{type, static_cast<uint32_t>(dimensions.size()),
                                               dimensions.empty() ? nullptr : dimensions.data(), 0.0F, 0};
        OK(ANeuralNetworksModel_addOperand(model_, &given));
        return count_++;
    }
    uint32_t number(int32_t value) {
        const uint32_t index = tensor({}, ANEURALNETWORKS_INT32);
        OK(ANeuralNetworksModel_setOperandValue(model_, static_cast<int32_t>(index), &value, sizeof value));
        return index;
    }
    /// The values must live as long as the model.
    uint32_t constant(Indexes dimensions, const std::vector<float>& values) {
        const uint32_t index = tensor(dimensions);
        OK(ANeuralNetworksModel_setOperandValue(model_, static_cast<int32_t>(index), values.data(),
                                                values.size() * sizeof(float)));
        return index;
    }
    uint32_t graph(const Model& value) {
        const uint32_t index = tensor({}, ANEURALNETWORKS_MODEL);
        OK(ANeuralNetworksModel_setOperandValueFromModel(model_, static_cast<int32_t>(index), value.get()));
        return index;
    }
    void operation(int32_t type, Indexes inputs, Indexes outputs) {
        OK(ANeuralNetworksModel_addOperation(model_, type, static_cast<uint32_t>(inputs.size()), inputs.data(),
                                             static_cast<uint32_t>(outputs.size()), outputs.data()));
    }
    void finish(Indexes inputs, Indexes outputs) {
        OK(ANeuralNetworksModel_identifyInputsAndOutputs(model_, static_cast<uint32_t>(inputs.size()), inputs.data(),
                                                         static_cast<uint32_t>(outputs.size()), outputs.data()));
        OK(ANeuralNetworksModel_finish(model_));
    }
    Compilation compile() const {
        ANeuralNetworksDevice* device = nullptr;
        OK(ANeuralNetworks_getDevice(0, &device));
        ANeuralNetworksCompilation* compilation = nullptr;
        OK(ANeuralNetworksCompilation_createForDevices(model_, &device, 1, &compilation));
        OK(ANeuralNetworksCompilation_setPreference(compilation, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED));
        OK(ANeuralNetworksCompilation_finish(compilation));
        return Compilation(compilation);
    }
    ANeuralNetworksModel* get() const { return model_; }

private:
    ANeuralNetworksModel* model_ = nullptr;
    uint32_t count_ = 0;
};

using Floats = std::vector<float>;

inline void bind_input(const Execution& execution, int32_t index, const Floats& values) {
    OK(ANeuralNetworksExecution_setInput(execution.get(), index, nullptr, values.data(), values.size() * sizeof(float)));
}
inline void bind_output(const Execution& execution, int32_t index, Floats& values) {
    OK(ANeuralNetworksExecution_setOutput(execution.get(), index, nullptr, values.data(), values.size() * sizeof(float)));
}
