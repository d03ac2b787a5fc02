/* For programs that include the header by this name. */

#ifndef NNHAL_NEURALNETWORKSTYPES_H
#define NNHAL_NEURALNETWORKSTYPES_H

#include "android/NeuralNetworks.h"

#endif
