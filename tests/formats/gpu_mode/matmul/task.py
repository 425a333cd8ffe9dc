from typing import Any

input_t, output_t = Any, Any
