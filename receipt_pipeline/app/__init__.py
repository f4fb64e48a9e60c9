"""Every use case once, by audience: functions of the application's context and the principal who asks."""
