/* For programs that include the header by this name. */

#ifndef NNHAL_NEURALNETWORKSEXTENSIONS_H
#define NNHAL_NEURALNETWORKSEXTENSIONS_H

#include "android/NeuralNetworksExtensions.h"

#endif
