#include "tests/cpp/runtime/session.h"
