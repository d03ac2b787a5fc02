/* For programs that include the header by this name. */

#ifndef NNHAL_NEURALNETWORKS_H
#define NNHAL_NEURALNETWORKS_H

#include "android/NeuralNetworks.h"

#endif
