"""int8: calibration, rounding, and the search for convs that must stay in fp32."""
