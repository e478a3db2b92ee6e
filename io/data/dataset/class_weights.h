// Weights of classes in the training loss, and of the positives of several labels.
#pragma once

#include <string>

#include "io/data/dataset/dataset.h"

namespace io {

// Sets the weights of the labels of a training set. `option` is "" (none), "balanced", or a number
// for each class or label, "1,2.5,0.5".
//
// Balanced weights are those of scikit-learn: samples / (classes * samples of the class), or with
// a class per position, positions that have a label in place of samples; for
// several labels, negatives / positives of the known ones. They are 1 if a divisor or a weight of
// positives would be 0. Throws ConfigError for another number of weights, a weight that is no
// positive number (or, for classes, 0), and labels that have no weights.
void set_class_weights(const std::string& option, Dataset& train);

}  // namespace io
