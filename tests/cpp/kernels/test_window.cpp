#include "tests/cpp/catch.h"
