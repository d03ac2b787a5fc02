/* For programs that include the header by this name. */

#ifndef NNHAL_ANDROID_NEURALNETWORKSTYPES_H
#define NNHAL_ANDROID_NEURALNETWORKSTYPES_H

#include "NeuralNetworks.h"

#endif
